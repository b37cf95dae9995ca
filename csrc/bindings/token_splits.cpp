// How tokens are merged from two others, where a vocabulary only orders its tokens.
//
// In any text, the merges inside of what becomes one token are those that the token's own text
// undergoes alone: no merge crosses its ends. So each token has one last merge, and that is found
// by merging its characters: again and again the pair of neighbours that makes the first token in
// the order, the leftmost of equals.
#include "bindings/token_splits.h"

#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "in_threads.h"

namespace nb = nanobind;

namespace octavo {

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Splits = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr int32_t none = INT32_MAX;
constexpr size_t max_threads = 4;
constexpr size_t batch = 4096;  // tokens that a thread takes at once

// Token -> its place in the order. Open addressing; the seed keeps strangers from aiming at one
// slot. Nearly all time goes into waiting for memory: a slot is all that a short token needs.
class Places {
  public:
    explicit Places(const std::vector<std::string_view>& tokens) : tokens_(tokens) {
        size_t size = 16;
        while (size < 2 * tokens.size()) size *= 2;
        slots_.assign(size, Slot{0, 0, none});
        std::random_device device;
        seed_ = (static_cast<uint64_t>(device()) << 32) | device();
        for (size_t i = 0; i < tokens.size(); i++) {
            const Slot wanted = slot_for(tokens[i], static_cast<int32_t>(i));
            Slot& slot = slots_[index_of(tokens[i], wanted)];
            if (slot.place != none) continue;  // of equal tokens the first counts
            slot = wanted;
            if (is_ascii_pair(tokens[i])) ascii_pairs_[pair_index(tokens[i])] = slot.place;
        }
    }

    int32_t find(std::string_view token) const {
        if (is_ascii_pair(token)) return ascii_pairs_[pair_index(token)];
        return slots_[index_of(token, slot_for(token, none))].place;
    }

  private:
    struct Slot {
        uint64_t word;  // the token's bytes if they are no more than eight, else their hash
        uint32_t size;  // of the token in bytes
        int32_t place;
    };

    // Pairs of two letters are looked for most: at every place of every token.
    static bool is_ascii_pair(std::string_view token) {
        return token.size() == 2 && !((token[0] | token[1]) & 0x80);
    }
    static size_t pair_index(std::string_view token) {
        return static_cast<size_t>(token[0]) << 7 | static_cast<size_t>(token[1]);
    }

    Slot slot_for(std::string_view token, int32_t place) const {
        return Slot{word_of(token), static_cast<uint32_t>(token.size()), place};
    }

    // Of the slot that holds this token, or of the empty one where it would be.
    size_t index_of(std::string_view token, const Slot& wanted) const {
        const size_t mask = slots_.size() - 1;
        for (size_t i = mixed(seed_ ^ wanted.size, wanted.word) & mask;; i = (i + 1) & mask) {
            const Slot& slot = slots_[i];
            if (slot.place == none) return i;
            if (slot.word != wanted.word || slot.size != wanted.size) continue;
            if (token.size() <= 8 || tokens_[static_cast<size_t>(slot.place)] == token) return i;
        }
    }

    uint64_t word_of(std::string_view token) const {
        const char* data = token.data();
        const size_t size = token.size();
        if (size == 8) return load<uint64_t>(data);
        if (size >= 4 && size < 8) {  // the two halves overlap
            return uint64_t{load<uint32_t>(data)} << 32 | load<uint32_t>(data + size - 4);
        }
        if (size == 2 || size == 3) {
            return uint64_t{load<uint16_t>(data)} << 16 | load<uint16_t>(data + size - 2);
        }
        if (size < 2) return size == 1 ? static_cast<uint8_t>(data[0]) : 0;
        uint64_t value = seed_;
        for (size_t i = 0; i + 8 < size; i += 8) value = mixed(value, load<uint64_t>(data + i));
        return mixed(value, load<uint64_t>(data + size - 8));
    }

    template <typename Word>
    static Word load(const char* data) {
        Word word;
        std::memcpy(&word, data, sizeof word);
        return word;
    }

    static uint64_t mixed(uint64_t value, uint64_t word) {
        value = (value ^ word) * 0x9E3779B97F4A7C15u;
        value = (value ^ value >> 32) * 0xD6E8FEB86659FD93u;
        return value ^ value >> 32;
    }

    const std::vector<std::string_view>& tokens_;
    std::vector<Slot> slots_;
    std::vector<int32_t> ascii_pairs_ = std::vector<int32_t>(128 * 128, none);
    uint64_t seed_ = 0;
};

// The last merge of one token; keeps its memory from token to token.
class Merging {
  public:
    explicit Merging(const Places& places) : places_(places) {
        for (int byte = 0; byte < 128; byte++) {
            const char letter = static_cast<char>(byte);
            ascii_[byte] = places.find(std::string_view(&letter, 1)) != none;
        }
    }

    // Characters of the left part; 0 if merging does not end in the token.
    int32_t left_part(std::string_view token) {
        if (!start(token)) return 0;
        size_t parts = starts_.size() - 1;
        while (parts > 2) {
            size_t best = 0;
            for (size_t i = 1; i + 1 < parts; i++) {
                if (pairs_[i] < pairs_[best]) best = i;
            }
            if (pairs_[best] == none) return 0;
            starts_.erase(starts_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
            pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(best));
            parts--;
            if (best > 0) pairs_[best - 1] = pair(token, best - 1);
            if (best + 1 < parts) pairs_[best] = pair(token, best);
        }
        return parts == 2 ? characters(token.substr(0, starts_[1])) : 0;
    }

  private:
    // The characters of the token are its first parts; false if one of them is no token itself.
    bool start(std::string_view token) {
        starts_.clear();
        for (size_t i = 0; i < token.size(); i++) {
            if (i == 0 || !continues(token[i])) starts_.push_back(i);
        }
        starts_.push_back(token.size());
        pairs_.clear();
        for (size_t i = 0; i + 2 < starts_.size(); i++) pairs_.push_back(pair(token, i));
        for (size_t i = 0; i + 1 < starts_.size(); i++) {
            const std::string_view letter = token.substr(starts_[i], starts_[i + 1] - starts_[i]);
            const bool known = letter.size() == 1 && static_cast<uint8_t>(letter[0]) < 128
                                   ? ascii_[static_cast<uint8_t>(letter[0])]
                                   : places_.find(letter) != none;
            if (!known) return false;
        }
        return true;
    }

    // The place of what part `i` and the next make together.
    int32_t pair(std::string_view token, size_t i) const {
        return places_.find(token.substr(starts_[i], starts_[i + 2] - starts_[i]));
    }

    static bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

    static int32_t characters(std::string_view text) {
        int32_t count = 0;
        for (char byte : text) count += !continues(byte);
        return count;
    }

    const Places& places_;
    bool ascii_[128];
    std::vector<size_t> starts_;  // of each part, then the token's end
    std::vector<int32_t> pairs_;  // of each part with the next
};

// Whether the ends rise from 0 to the text's end and the arrays fit.
bool fits(const Bytes& text, const Ends& ends, const Splits& splits) {
    if (ends.size() != splits.size() || ends.size() >= static_cast<size_t>(none)) return false;
    int64_t last = 0;
    for (size_t i = 0; i < ends.size(); i++) {
        if (ends(i) < last) return false;
        last = ends(i);
    }
    return last == static_cast<int64_t>(text.size());
}

void token_splits(Bytes text, Ends ends, Splits splits, size_t threads) {
    if (!fits(text, ends, splits)) throw nb::value_error("ends do not divide the text");
    nb::gil_scoped_release released;
    const char* data = reinterpret_cast<const char*>(text.data());
    std::vector<std::string_view> tokens;
    tokens.reserve(ends.size());
    int64_t start = 0;
    for (size_t i = 0; i < ends.size(); i++) {
        tokens.emplace_back(data + start, static_cast<size_t>(ends(i) - start));
        start = ends(i);
    }
    const Places places(tokens);
    int32_t* found = splits.data();
    std::atomic<size_t> next{0};
    const auto work = [&] {
        Merging merging(places);
        for (;;) {
            const size_t first = next.fetch_add(batch);
            const size_t last = std::min(first + batch, tokens.size());
            if (first >= last) return;
            for (size_t i = first; i < last; i++) found[i] = merging.left_part(tokens[i]);
        }
    };
    in_threads(std::min({threads, max_threads, tokens.size() / batch}), work);
}

// The two parts of each token that has any.
nb::list token_pairs(nb::list tokens, Splits splits) {
    if (tokens.size() != splits.size()) throw nb::value_error("one split for each token");
    nb::list pairs;
    for (size_t i = 0; i < splits.size(); i++) {
        if (splits(i) <= 0) continue;
        PyObject* token = PyList_GET_ITEM(tokens.ptr(), static_cast<Py_ssize_t>(i));
        if (!PyUnicode_Check(token)) throw nb::type_error("tokens must be strings");
        const Py_ssize_t length = PyUnicode_GET_LENGTH(token);
        const Py_ssize_t split = std::min<Py_ssize_t>(splits(i), length);
        nb::object left = nb::steal(PyUnicode_Substring(token, 0, split));
        nb::object right = nb::steal(PyUnicode_Substring(token, split, length));
        if (!left.is_valid() || !right.is_valid()) throw nb::python_error();
        pairs.append(nb::make_tuple(left, right));
    }
    return pairs;
}

}  // namespace

void bind_token_splits(nb::module_& m) {
    m.def("token_splits", &token_splits, nb::arg("text"), nb::arg("ends"), nb::arg("splits"),
          nb::arg("threads") = 1,
          "For tokens in the order in which they are merged, their UTF-8 in a row in `text`, ends "
          "in\n"
          "`ends`: writes to `splits` how many characters the left part of each one's last merge\n"
          "has, 0 where there is none, in up to so many threads. ValueError: the arrays do not "
          "fit.");
    m.def("token_pairs", &token_pairs, nb::arg("tokens"), nb::arg("splits"),
          "The left and the right part of each token whose split is not 0: list[tuple[str, str]].");
}

}  // namespace octavo
