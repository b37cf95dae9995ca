// The executor's steps on a range of tokens: which kernel each calls, on which values.
#include "elementwise/elementwise.h"
#include "executor/executor.h"
#include "norm/rms_norm.h"
#include "rope/rope.h"

namespace octavo {

void Executor::run_local(const LocalStep& step, int64_t begin, int64_t end, int thread) {
    const Op& op = program_.ops[static_cast<size_t>(step.op)];
    switch (step.kind) {
        case StepKind::angles: {
            const Rope& rope = program_.ropes[static_cast<size_t>(step.value)];
            const int64_t half = static_cast<int64_t>(rope.frequencies.size());
            for (int64_t t = begin; t < end; t++) {
                rope_angles(positions_[t], rope.frequencies.data(), half, angles(step.value, t));
            }
            return;
        }
        case StepKind::embed: {
            const Matrix& matrix = program_.matrices[static_cast<size_t>(op.matrix)];
            const auto& packed = packed_[static_cast<size_t>(op.matrix)];
            const int64_t bytes = static_cast<int64_t>(row_bytes(matrix.type, matrix.cols));
            for (int64_t t = begin; t < end; t++) {
                float* out = value(op.output, t);
                if (packed) {
                    packed->decode_packed_row(token_ids_[t], out);
                } else {
                    const int64_t row = matrix.row_order.empty()
                                            ? token_ids_[t]
                                            : matrix.row_order[static_cast<size_t>(token_ids_[t])];
                    decode_row(matrix.type, matrix.raw + row * bytes, matrix.cols, out);
                }
                if (op.scale != 1) scale(out, op.scale, matrix.cols);
            }
            return;
        }
        case StepKind::rms_norm: {
            const float* gain = program_.vectors[static_cast<size_t>(op.vector)].data();
            const int64_t width = program_.widths[static_cast<size_t>(op.output)] / op.groups;
            for (int64_t t = begin; t < end; t++) {
                const float* in = value(op.inputs[0], t);
                float* out = value(op.output, t);
                for (int64_t i = 0; i < op.groups * width; i += width) {
                    rms_norm(in + i, gain, width, op.eps, out + i, isa_);
                }
            }
            return;
        }
        case StepKind::quantise: {
            const int64_t cols = program_.widths[static_cast<size_t>(step.value)];
            const int64_t stride = plan_.values[static_cast<size_t>(step.value)].stride;
            quantise_q8(value(step.value, 0), stride, cols,
                        plan_.terms[static_cast<size_t>(step.value)], begin, end,
                        quantised(step.value), isa_);
            return;
        }
        case StepKind::rope: {
            const Rope& config = program_.ropes[static_cast<size_t>(op.rope)];
            const int64_t half = static_cast<int64_t>(config.frequencies.size());
            for (int64_t t = begin; t < end; t++) {
                rope(value(op.inputs[0], t), angles(op.rope, t), op.heads, config.head_dim, half,
                     value(op.output, t), isa_);
            }
            return;
        }
        case StepKind::write: {
            const CacheLayer& layer = program_.layers[static_cast<size_t>(op.layer)];
            const int64_t* slots = slots_[static_cast<size_t>(layer.group)];
            KvLayer& cache = cache_[static_cast<size_t>(op.layer)];
            for (int64_t t = begin; t < end; t++) {
                cache.write(slots[t], value(op.inputs[1], t), value(op.inputs[2], t), attention_);
            }
            return;
        }
        case StepKind::merge: {
            const AttentionPlan& plan = attention_plan(op);
            const AttentionInput input = attention_input(op);
            float* scratch = scratch_[static_cast<size_t>(thread)].total.data();
            for (int64_t t = begin; t < end; t++) {
                merge(t, op.attention, plan, input, attention_, scratch);
            }
            return;
        }
        case StepKind::silu_mul:
        case StepKind::gelu_mul:
        case StepKind::add: {
            const int64_t width = program_.widths[static_cast<size_t>(op.output)];
            for (int64_t t = begin; t < end; t++) {
                const float* a = value(op.inputs[0], t);
                const float* b = value(op.inputs[1], t);
                float* out = value(op.output, t);
                if (step.kind == StepKind::add) {
                    add(a, b, width, out);
                } else if (step.kind == StepKind::silu_mul) {
                    silu_mul(a, b, width, out, isa_);
                } else {
                    gelu_mul(a, b, width, out, isa_);
                }
            }
        }
    }
}

}  // namespace octavo
