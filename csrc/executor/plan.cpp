// Planning: phases from operations, then memory from the phases in which values live.
#include "executor/plan.h"

#include <algorithm>
#include <stdexcept>

#include "quant/activations.h"

namespace octavo {

namespace {

constexpr int64_t float_line = 16;  // floats of a cache line

int64_t round_up(int64_t count) { return (count + float_line - 1) / float_line * float_line; }

class Planner {
  public:
    explicit Planner(const Program& program) : program_(program) {}

    Plan make() {
        plan_.values.resize(program_.widths.size());
        plan_.quantised.resize(program_.widths.size());
        plan_.terms.resize(program_.widths.size());
        plan_.angles.resize(program_.ropes.size());
        for (int i = 0; i < static_cast<int>(program_.ropes.size()); i++) {
            local().push_back({StepKind::angles, 0, i});
        }
        for (int i = 0; i < static_cast<int>(program_.ops.size()); i++) take(i);
        if (plan_.head < 0) throw std::invalid_argument("the program has no logits");
        lay_out();
        return plan_;
    }

  private:
    void take(int index) {
        const Op& op = program_.ops[static_cast<size_t>(index)];
        if (plan_.hidden >= 0 && op.kind != OpKind::logits) {
            throw std::invalid_argument("only logits may follow a gather");
        }
        switch (op.kind) {
            case OpKind::embed:
                return local().push_back({StepKind::embed, index, -1});
            case OpKind::rms_norm:
                return local().push_back({StepKind::rms_norm, index, -1});
            case OpKind::rope:
                return local().push_back({StepKind::rope, index, -1});
            case OpKind::silu_mul:
                return local().push_back({StepKind::silu_mul, index, -1});
            case OpKind::gelu_mul:
                return local().push_back({StepKind::gelu_mul, index, -1});
            case OpKind::add:
                return local().push_back({StepKind::add, index, -1});
            case OpKind::linear:
                return take_linear(index, op);
            case OpKind::attention:
                local().push_back({StepKind::write, index, -1});
                plan_.phases.push_back({Phase::Kind::attend, {}, {index}});
                local().push_back({StepKind::merge, index, -1});
                return;
            case OpKind::gather:
                plan_.hidden = op.inputs[0];
                plan_.gather = index;
                return;
            case OpKind::logits:
                if (plan_.hidden < 0) throw std::invalid_argument("logits need a gather");
                plan_.head = index;
        }
    }

    void take_linear(int index, const Op& op) {
        const int input = op.inputs[0];
        Place& quantised = plan_.quantised[static_cast<size_t>(input)];
        if (quantised.stride == 0 && is_read_by(input, reads_q8)) {
            const int64_t cols = program_.widths[static_cast<size_t>(input)];
            const int terms = needs_two_terms(input) ? 2 : 1;
            plan_.terms[static_cast<size_t>(input)] = terms;
            const int64_t bytes = terms * q8_stride(cols) * static_cast<int64_t>(sizeof(Q8Block));
            quantised.stride = round_up(bytes / static_cast<int64_t>(sizeof(float)));
            local().push_back({StepKind::quantise, index, input});
        }
        if (!plan_.phases.empty() && plan_.phases.back().kind == Phase::Kind::linears) {
            Phase& last = plan_.phases.back();
            const Op& other = program_.ops[static_cast<size_t>(last.ops[0])];
            if (other.inputs[0] == input) return last.ops.push_back(index);
        }
        plan_.phases.push_back({Phase::Kind::linears, {}, {index}});
    }

    bool is_read_by(int value, bool (*is_meant)(WeightType)) const {
        return std::any_of(program_.ops.begin(), program_.ops.end(), [&](const Op& op) {
            return op.kind == OpKind::linear && op.inputs[0] == value &&
                   is_meant(program_.matrices[static_cast<size_t>(op.matrix)].type);
        });
    }

    // Where one term of int8 would err too much (quant/activations.h): what attention is made of,
    // whose errors the softmax enlarges; what matrices of 2 and 3 bits a weight read, whose models
    // feel every error; and gated products, which have the largest outliers, where files keep the
    // matrix that reads them in 6 bits for that reason.
    bool needs_two_terms(int value) const {
        return makes_attention(value) ||
               is_read_by(value,
                          [](WeightType type) {
                              return type == WeightType::q2_k || type == WeightType::q3_k;
                          }) ||
               (is_gated(value) &&
                is_read_by(value, [](WeightType type) { return type == WeightType::q6_k; }));
    }

    bool is_gated(int value) const {
        return std::any_of(program_.ops.begin(), program_.ops.end(), [&](const Op& op) {
            return op.output == value &&
                   (op.kind == OpKind::silu_mul || op.kind == OpKind::gelu_mul);
        });
    }

    // Whether a linear makes queries, keys or values of this value: directly, or through rope and
    // norms, the operations that stand between in the families that are built.
    bool makes_attention(int value) const {
        return std::any_of(program_.ops.begin(), program_.ops.end(), [&](const Op& op) {
            return op.kind == OpKind::linear && op.inputs[0] == value && feeds_attention(op.output);
        });
    }

    bool feeds_attention(int value) const {
        return std::any_of(program_.ops.begin(), program_.ops.end(), [&](const Op& op) {
            if (std::find(op.inputs.begin(), op.inputs.end(), value) == op.inputs.end()) {
                return false;
            }
            return op.kind == OpKind::attention ||
                   ((op.kind == OpKind::rope || op.kind == OpKind::rms_norm) &&
                    feeds_attention(op.output));
        });
    }

    std::vector<LocalStep>& local() {
        if (plan_.phases.empty() || plan_.phases.back().kind != Phase::Kind::local) {
            plan_.phases.push_back({Phase::Kind::local, {}, {}});
        }
        return plan_.phases.back().steps;
    }

    // A value holds its memory from the phase that writes it to the last that reads it, both
    // included: within a phase threads are not at the same step.
    struct Life {
        Place* place;
        int begin;
        int end;
    };

    void lay_out() {
        std::vector<Life> lives;
        std::vector<int> life_of(program_.widths.size(), -1), q8_of(program_.widths.size(), -1);
        std::vector<int> angles_of(program_.ropes.size(), -1);
        const auto begin_life = [&](int& id, Place* place, int phase) {
            if (id < 0) {
                id = static_cast<int>(lives.size());
                lives.push_back({place, phase, phase});
            }
            lives[static_cast<size_t>(id)].end = phase;
        };
        for (size_t i = 0; i < program_.widths.size(); i++) {
            plan_.values[i].stride = round_up(program_.widths[i]);
        }
        for (size_t i = 0; i < program_.ropes.size(); i++) {
            plan_.angles[i].stride =
                round_up(2 * static_cast<int64_t>(program_.ropes[i].frequencies.size()));
        }
        const auto touch = [&](int value, int phase) {
            const size_t at = static_cast<size_t>(value);
            begin_life(life_of[at], &plan_.values[at], phase);
        };
        const auto touch_op = [&](int index, int phase) {
            const Op& op = program_.ops[static_cast<size_t>(index)];
            for (const int value : op.inputs) touch(value, phase);
            touch(op.output, phase);
            if (op.kind == OpKind::linear) {
                const size_t input = static_cast<size_t>(op.inputs[0]);
                if (plan_.quantised[input].stride > 0) {
                    begin_life(q8_of[input], &plan_.quantised[input], phase);
                }
            }
            if (op.kind == OpKind::rope) {
                const size_t at = static_cast<size_t>(op.rope);
                begin_life(angles_of[at], &plan_.angles[at], phase);
            }
        };
        for (int p = 0; p < static_cast<int>(plan_.phases.size()); p++) {
            const Phase& phase = plan_.phases[static_cast<size_t>(p)];
            for (const int op : phase.ops) touch_op(op, p);
            for (const LocalStep& step : phase.steps) {
                const size_t at = static_cast<size_t>(step.value);
                if (step.kind == StepKind::angles) {
                    begin_life(angles_of[at], &plan_.angles[at], p);
                } else if (step.kind == StepKind::quantise) {
                    touch(step.value, p);
                    begin_life(q8_of[at], &plan_.quantised[at], p);
                } else {
                    touch_op(step.op, p);
                }
            }
        }
        touch(plan_.hidden, static_cast<int>(plan_.phases.size()));
        place(lives);
    }

    // First fit, in the order of the lives' begins.
    void place(std::vector<Life>& lives) {
        std::stable_sort(lives.begin(), lives.end(),
                         [](const Life& a, const Life& b) { return a.begin < b.begin; });
        std::vector<Life> alive;
        for (const Life& life : lives) {
            alive.erase(std::remove_if(alive.begin(), alive.end(),
                                       [&](const Life& old) { return old.end < life.begin; }),
                        alive.end());
            std::sort(alive.begin(), alive.end(), [](const Life& a, const Life& b) {
                return a.place->offset < b.place->offset;
            });
            int64_t offset = 0;
            for (const Life& other : alive) {
                if (offset + life.place->stride <= other.place->offset) break;
                offset = std::max(offset, other.place->offset + other.place->stride);
            }
            life.place->offset = offset;
            alive.push_back(life);
            plan_.floats_per_token = std::max(plan_.floats_per_token, offset + life.place->stride);
        }
    }

    const Program& program_;
    Plan plan_;
};

}  // namespace

Plan make_plan(const Program& program) { return Planner(program).make(); }

}  // namespace octavo
