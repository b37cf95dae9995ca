// The executor's loading: a thread packs the weights, matrix by matrix, on all threads of the pool.
#include <stdexcept>

#include "executor/executor.h"
#include "executor/split.h"

namespace octavo {

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
            for (size_t i = 0; i < packed_.size(); i++) {
                if (!multiplied[i]) continue;
                if (abandoned_) throw std::runtime_error("the loading was given up");
                const Matrix& matrix = program_.matrices[i];
                auto packed = std::make_unique<PackedLinear>(matrix.type, matrix.rows, matrix.cols);
                const int64_t* order = matrix.row_order.empty() ? nullptr : matrix.row_order.data();
                pool_.run([&](int thread) {
                    const Range tiles = share(packed->tiles(), thread, pool_.size());
                    packed->pack_tiles(matrix.raw, order, tiles.begin, tiles.end);
                });
                packed_[i] = std::move(packed);
            }
        } catch (...) {
            load_error_ = std::current_exception();
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
