// octavo._native.Program (built operation by operation) and Executor. Bindings only, no logic.
#include "bindings/bind_executor.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>

#include "bindings/convert.h"
#include "bindings/rules.h"
#include "executor/executor.h"

namespace octavo {

namespace {

// The program under construction, and the Python arrays that its matrices point into.
struct Builder {
    Program program;
    nb::list kept;
};

int add_matrix(Builder& self, const std::string& type, Array<uint8_t, 1> raw, int64_t rows,
               int64_t cols, nb::object row_order) {
    Matrix matrix{weight_type_named(type), rows, cols, raw.data(), {}};
    if (rows <= 0 || cols <= 0 || cols % block_width(matrix.type) != 0 ||
        raw.size() != static_cast<size_t>(rows) * row_bytes(matrix.type, cols)) {
        throw std::invalid_argument("a matrix must be whole blocks and as long as its shape says");
    }
    if (!row_order.is_none()) {
        const auto order = nb::cast<Array<int64_t, 1>>(row_order, false);
        matrix.row_order.assign(order.data(), order.data() + order.size());
        const auto wrong = [rows](int64_t row) { return row < 0 || row >= rows; };
        if (static_cast<int64_t>(order.size()) != rows ||
            std::any_of(matrix.row_order.begin(), matrix.row_order.end(), wrong)) {
            throw std::invalid_argument("row_order must tell a stored row for each row");
        }
    }
    self.kept.append(raw);
    self.program.matrices.push_back(std::move(matrix));
    return static_cast<int>(self.program.matrices.size()) - 1;
}

// What is multiplied has been packed, and an embedding that is multiplied too is read from there.
void forget_packed(Builder& self) {
    for (const Op& op : self.program.ops) {
        if (op.kind != OpKind::linear && op.kind != OpKind::logits) continue;
        self.kept[static_cast<size_t>(op.matrix)] = nb::none();
    }
}

int add_vector(Builder& self, Array<float, 1> values) {
    // Readable up to the next multiple of 8, as the kernels want it.
    std::vector<float> vector((values.size() + 7) / 8 * 8, 0.0f);
    std::copy(values.data(), values.data() + values.size(), vector.begin());
    self.program.vectors.push_back(std::move(vector));
    return static_cast<int>(self.program.vectors.size()) - 1;
}

int add_rope(Builder& self, int64_t head_dim, Array<float, 1> frequencies) {
    const float* first = frequencies.data();
    self.program.ropes.push_back({head_dim, {first, first + frequencies.size()}});
    return static_cast<int>(self.program.ropes.size()) - 1;
}

int add_layer(Builder& self, int group, int kv_heads, int dim) {
    self.program.layers.push_back({group, kv_heads, dim});
    self.program.groups = std::max(self.program.groups, group + 1);
    return static_cast<int>(self.program.layers.size()) - 1;
}

void add_op(Builder& self, OpKind kind, std::vector<int> inputs, int output, int matrix,
            int vector) {
    Op op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.output = output;
    op.matrix = matrix;
    op.vector = vector;
    self.program.ops.push_back(std::move(op));
}

template <typename Item>
void need_size(const Array<Item, 1>& array, int64_t size, const char* name) {
    if (static_cast<int64_t>(array.size()) == size) return;
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(array.size()) +
                                " entries; it must have " + std::to_string(size));
}

void forward(Executor& self, int groups, Array<int32_t, 1> token_ids, Array<int32_t, 2> positions,
             Array<int32_t, 1> query_starts, Array<int32_t, 1> context_lens,
             const std::vector<Array<int64_t, 1>>& slots,
             const std::vector<Array<int32_t, 2>>& block_tables, Array<int32_t, 1> logits_rows) {
    StepInput input;
    input.tokens = static_cast<int64_t>(token_ids.size());
    input.rows = static_cast<int64_t>(logits_rows.size());
    input.token_ids = token_ids.data();
    input.positions = positions.data();
    input.logits_rows = logits_rows.data();
    if (positions.shape(0) != 1 || positions.shape(1) != token_ids.size()) {
        throw std::invalid_argument("positions must be [1, tokens]");
    }
    if (query_starts.size() == 0 || static_cast<int>(slots.size()) != groups ||
        static_cast<int>(block_tables.size()) != groups) {
        throw std::invalid_argument("slots and block tables must be one a cache group");
    }
    const int64_t sequences = static_cast<int64_t>(query_starts.size()) - 1;
    need_size(context_lens, sequences, "context_lens");
    for (int g = 0; g < groups; g++) {
        const auto& table = block_tables[static_cast<size_t>(g)];
        need_size(slots[static_cast<size_t>(g)], input.tokens, "slots");
        if (static_cast<int64_t>(table.shape(0)) != sequences) {
            throw std::invalid_argument("a block table must have a row for each sequence");
        }
        input.slots.push_back(slots[static_cast<size_t>(g)].data());
        input.sequences.push_back({sequences, query_starts.data(), context_lens.data(),
                                   table.data(), static_cast<int64_t>(table.shape(1))});
    }
    const nb::gil_scoped_release no_python;
    self.forward(input);
}

nb::tuple sample(Executor& self, nb::sequence rows, nb::object masks) {
    const std::vector<RowRules> rules = rules_of(rows, masks);
    std::vector<RowResult> results;
    {
        const nb::gil_scoped_release no_python;
        self.sample(rules, results);
    }
    return python_results(rules, results);
}

nb::list profile(Executor& self, bool enabled) {
    nb::list times;
    for (const OpTime& time : self.profile(enabled)) {
        times.append(nb::make_tuple(time.op, time.start_s, time.duration_s));
    }
    return times;
}

// The sampler alone, for tests: logits [R, vocab_size].
nb::tuple sample_logits(Array<float, 2> logits, nb::sequence rows, nb::object masks, int threads,
                        const std::string& isa) {
    Sampler sampler(static_cast<int64_t>(logits.shape(1)), threads, isa_named(isa));
    const std::vector<RowRules> rules = rules_of(rows, masks);
    if (rules.size() != logits.shape(0)) throw std::invalid_argument("one rule a row of logits");
    std::vector<RowResult> results(rules.size());
    ThreadPool pool(threads);
    {
        const nb::gil_scoped_release no_python;
        std::atomic<size_t> next{0};
        pool.run([&](int thread) {
            for (size_t r = next.fetch_add(1); r < rules.size(); r = next.fetch_add(1)) {
                sampler.sample(logits.data() + r * logits.shape(1), rules[r], results[r], thread);
            }
        });
    }
    return python_results(rules, results);
}

}  // namespace

void bind_executor(nb::module_& m) {
    nb::class_<Builder>(m, "Program", "A program under construction; everything is an index.")
        .def("__init__",
             [](Builder* self, std::vector<int64_t> widths, int64_t vocab_size) {
                 new (self) Builder();
                 self->program.widths = std::move(widths);
                 self->program.vocab_size = vocab_size;
             })
        .def("matrix", &add_matrix, nb::arg("kind"), nb::arg("raw"), nb::arg("rows"),
             nb::arg("cols"), nb::arg("row_order").none())
        .def("vector", &add_vector)
        .def("rope_config", &add_rope)
        .def("layer", &add_layer)
        .def("embed",
             [](Builder& self, int output, int matrix, float scale) {
                 add_op(self, OpKind::embed, {}, output, matrix, -1);
                 self.program.ops.back().scale = scale;
             })
        .def("rms_norm",
             [](Builder& self, int x, int output, int gain, float eps, int64_t groups) {
                 add_op(self, OpKind::rms_norm, {x}, output, -1, gain);
                 self.program.ops.back().eps = eps;
                 self.program.ops.back().groups = groups;
             })
        .def("linear", [](Builder& self, int x, int output, int matrix,
                          int bias) { add_op(self, OpKind::linear, {x}, output, matrix, bias); })
        .def("rope",
             [](Builder& self, int x, int output, int config, int64_t heads) {
                 add_op(self, OpKind::rope, {x}, output, -1, -1);
                 self.program.ops.back().rope = config;
                 self.program.ops.back().heads = heads;
             })
        .def("attention",
             [](Builder& self, std::vector<int> qkv, int output, int layer, int heads, float scale,
                int window) {
                 add_op(self, OpKind::attention, std::move(qkv), output, -1, -1);
                 const CacheLayer& cache = self.program.layers.at(static_cast<size_t>(layer));
                 self.program.ops.back().layer = layer;
                 self.program.ops.back().attention = {heads, cache.kv_heads, cache.dim, window,
                                                      scale};
             })
        .def("silu_mul",
             [](Builder& self, int gate, int up, int output) {
                 add_op(self, OpKind::silu_mul, {gate, up}, output, -1, -1);
             })
        .def("gelu_mul",
             [](Builder& self, int gate, int up, int output) {
                 add_op(self, OpKind::gelu_mul, {gate, up}, output, -1, -1);
             })
        .def("add", [](Builder& self, int a, int b,
                       int output) { add_op(self, OpKind::add, {a, b}, output, -1, -1); })
        .def("gather", [](Builder& self, int x,
                          int output) { add_op(self, OpKind::gather, {x}, output, -1, -1); })
        .def("logits",
             [](Builder& self, int x, int output, int matrix, float scale) {
                 add_op(self, OpKind::logits, {x}, output, matrix, -1);
                 self.program.ops.back().scale = scale;
             })
        .def("forget_packed", &forget_packed);

    nb::class_<Executor>(m, "Executor", "Runs a program; called from one thread at a time.")
        .def(
            "__init__",
            [](Executor* self, const Builder& builder, int threads, const std::string& isa,
               const std::string& kv_type) {
                if (threads < 1) throw std::invalid_argument("threads must be at least 1");
                new (self)
                    Executor(builder.program, threads, isa_named(isa), kv_type_named(kv_type));
            },
            nb::keep_alive<1, 2>())
        .def("begin_loading", &Executor::begin_loading)
        .def("finish_loading", &Executor::finish_loading, nb::call_guard<nb::gil_scoped_release>())
        .def("abandon_loading", &Executor::abandon_loading)
        .def("allocate_cache", &Executor::allocate_cache)
        .def("forward", &forward)
        .def("sample", &sample, nb::arg("rows"), nb::arg("masks").none())
        .def("profile", &profile)
        .def_prop_ro("threads", &Executor::threads)
        .def_prop_ro("packed_bytes", &Executor::packed_bytes)
        .def_prop_ro("arena_bytes", &Executor::arena_bytes);

    m.def("sample", &sample_logits, nb::arg("logits"), nb::arg("rows"), nb::arg("masks").none(),
          nb::arg("threads"), nb::arg("isa"));
}

}  // namespace octavo
