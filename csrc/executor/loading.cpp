// The executor's loading: threads of its own pack the weights, behind whatever else the process
// does meanwhile, such as building the tokenizer.
#include <algorithm>
#include <stdexcept>

#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "executor/executor.h"
#include "executor/split.h"
#include "in_threads.h"

namespace octavo {

namespace {

constexpr int64_t unit_values = 1 << 18;  // of a matrix, that a thread packs at once
constexpr int behind = 10;                // niceness beside the process's other threads

struct Unit {
    PackedLinear* packed;
    const Matrix* matrix;
    Range tiles;
};

// What holds the process up otherwise is one thread of Python. Elsewhere all threads are equal.
void step_behind() {
#if defined(__linux__)
    const auto thread = static_cast<id_t>(syscall(SYS_gettid));
    // It fails where a sandbox forbids it, and is no more than slower then.
    static_cast<void>(setpriority(PRIO_PROCESS, thread, behind));
#endif
}

}  // namespace

Executor::~Executor() {
    abandon_loading();
    if (loader_.joinable()) loader_.join();
}

void Executor::begin_loading() {
    std::vector<bool> multiplied(program_.matrices.size(), false);
    for (const Op& op : program_.ops) {
        if (op.kind == OpKind::linear || op.kind == OpKind::logits) {
            multiplied[static_cast<size_t>(op.matrix)] = true;
        }
    }
    loader_ = std::thread([this, multiplied] {
        try {
            pack(multiplied);
        } catch (...) {
            load_error_ = std::current_exception();
        }
    });
}

void Executor::pack(const std::vector<bool>& multiplied) {
    std::vector<Unit> units;
    for (size_t i = 0; i < packed_.size(); i++) {
        if (!multiplied[i]) continue;
        const Matrix& matrix = program_.matrices[i];
        packed_[i] = std::make_unique<PackedLinear>(matrix.type, matrix.rows, matrix.cols);
        const int64_t tiles = packed_[i]->tiles();
        const int64_t size = std::max<int64_t>(
            1, unit_values * tiles / std::max<int64_t>(1, matrix.rows * matrix.cols));
        for (int64_t tile = 0; tile < tiles; tile += size) {
            units.push_back({packed_[i].get(), &matrix, {tile, std::min(tile + size, tiles)}});
        }
    }
    std::atomic<size_t> next{0};
    in_threads(static_cast<size_t>(pool_.size()), [&] {
        step_behind();
        for (size_t i = next++; i < units.size(); i = next++) {
            if (abandoned_) throw std::runtime_error("the loading was given up");
            const auto& [packed, matrix, tiles] = units[i];
            const int64_t* order = matrix->row_order.empty() ? nullptr : matrix->row_order.data();
            packed->pack_tiles(matrix->raw, order, tiles.begin, tiles.end);
        }
    });
}

void Executor::finish_loading() {
    if (loader_.joinable()) loader_.join();
    if (load_error_) std::rethrow_exception(load_error_);
}

size_t Executor::packed_bytes() const {
    size_t bytes = 0;
    for (const auto& packed : packed_) bytes += packed ? packed->size_bytes() : 0;
    return bytes;
}

}  // namespace octavo
