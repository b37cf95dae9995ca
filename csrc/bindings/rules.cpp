// RowSampling objects to the sampler's rules, and its results to arrays.
#include "bindings/rules.h"

#include <stdexcept>

#include "bindings/convert.h"

namespace octavo {

namespace {

template <typename Item>
Span<Item> span_of(nb::handle value) {
    if (value.is_none()) return {};
    const auto array = nb::cast<Array<Item, 1>>(value, false);
    return {array.data(), static_cast<int64_t>(array.size()), true};
}

// A NumPy array that owns its memory.
template <typename Item>
nb::object new_array(std::vector<Item>&& items) {
    auto* kept = new std::vector<Item>(std::move(items));
    nb::capsule owner(kept, [](void* it) noexcept { delete static_cast<std::vector<Item>*>(it); });
    return nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

RowRules rules_of_row(nb::handle row) {
    RowRules rules;
    rules.temperature = nb::cast<double>(row.attr("temperature"));
    rules.target = nb::cast<int64_t>(row.attr("target"));
    rules.num_logprobs = nb::cast<int64_t>(row.attr("num_logprobs"));
    rules.repetition_penalty = nb::cast<double>(row.attr("repetition_penalty"));
    rules.presence_penalty = nb::cast<double>(row.attr("presence_penalty"));
    rules.frequency_penalty = nb::cast<double>(row.attr("frequency_penalty"));
    rules.seen_ids = span_of<int32_t>(row.attr("seen_ids"));
    rules.output_ids = span_of<int32_t>(row.attr("output_ids"));
    rules.output_counts = span_of<int32_t>(row.attr("output_counts"));
    rules.bias_ids = span_of<int32_t>(row.attr("bias_ids"));
    rules.bias_values = span_of<float>(row.attr("bias_values"));
    rules.allowed_ids = span_of<int32_t>(row.attr("allowed_ids"));
    rules.banned_ids = span_of<int32_t>(row.attr("banned_ids"));
    if (rules.temperature > 0) {
        rules.top_k = nb::cast<int64_t>(row.attr("top_k"));
        rules.top_p = nb::cast<double>(row.attr("top_p"));
        rules.min_p = nb::cast<double>(row.attr("min_p"));
        rules.seed = nb::cast<uint64_t>(row.attr("seed"));
        rules.position = nb::cast<uint64_t>(row.attr("position"));
    }
    return rules;
}

}  // namespace

std::vector<RowRules> rules_of(nb::sequence rows, nb::object masks) {
    std::vector<RowRules> rules;
    rules.reserve(nb::len(rows));
    for (nb::handle row : rows) rules.push_back(rules_of_row(row));
    if (masks.is_none()) return rules;
    for (nb::handle item : masks.attr("items")()) {
        const int64_t row = nb::cast<int64_t>(item[0]);
        if (row < 0 || row >= static_cast<int64_t>(rules.size())) {
            throw std::out_of_range("a mask is for a row that the step does not have");
        }
        rules[static_cast<size_t>(row)].mask = span_of<int32_t>(item[1]);
    }
    return rules;
}

nb::tuple python_results(const std::vector<RowRules>& rules, std::vector<RowResult>& results) {
    std::vector<int32_t> tokens;
    nb::list logprobs;
    for (size_t r = 0; r < results.size(); r++) {
        RowResult& result = results[r];
        if (!result.error.empty()) {
            throw std::invalid_argument("row " + std::to_string(r) + ": " + result.error);
        }
        tokens.push_back(result.token);
        if (rules[r].num_logprobs < 0) {
            logprobs.append(nb::none());
            continue;
        }
        logprobs.append(nb::make_tuple(result.chosen, result.rank,
                                       new_array(std::move(result.top_ids)),
                                       new_array(std::move(result.top_values))));
    }
    return nb::make_tuple(new_array(std::move(tokens)), logprobs);
}

}  // namespace octavo
