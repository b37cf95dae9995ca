// The thread pool: one counter to start a round, one to end it, one barrier.
#include "executor/thread_pool.h"

#include <sched.h>

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto spin_time = std::chrono::microseconds(40);
constexpr auto yield_time = std::chrono::milliseconds(2);
constexpr auto nap_time = std::chrono::microseconds(50);

void pause_briefly() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until ready() or until spin_time has passed; returns whether it is ready.
template <typename Ready>
bool spin(const Ready& ready) {
    if (ready()) return true;
    const auto start = Clock::now();
    do {
        for (int i = 0; i < 32; i++) {
            if (ready()) return true;
            pause_briefly();
        }
    } while (Clock::now() - start < spin_time);
    return false;
}

// For what the others are about to do: spins, yields, then naps.
template <typename Ready>
void wait_for(const Ready& ready) {
    if (spin(ready)) return;
    const auto start = Clock::now();
    while (!ready()) {
        if (Clock::now() - start < yield_time) {
            sched_yield();
        } else {
            std::this_thread::sleep_for(nap_time);
        }
    }
}

// Other libraries of the process may have a thread round or flush subnormals in a way of theirs;
// bits must not depend on whose thread computes.
void call_with_standard_floats(void (*call)(void*, int), void* function, int thread) {
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x1f80);  // round to nearest, subnormals kept, exceptions masked
    call(function, thread);
    _mm_setcsr(before);
#else
    call(function, thread);
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : size_(threads) {
    try {
        for (int thread = 1; thread < threads; thread++) {
            workers_.emplace_back([this, thread] { work(thread); });
        }
    } catch (...) {
        stop();  // a thread that cannot be started
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        round_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Erased call, void* function) {
    if (size_ == 1) return call_with_standard_floats(call, function, 0);
    call_ = call;
    function_ = function;
    running_.store(size_ - 1, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (sleeping_ > 0) wake_.notify_all();
    }
    call_with_standard_floats(call, function, 0);
    wait_for([this] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::work(int thread) {
    for (uint32_t seen = 0;;) {
        const auto called = [&] { return round_.load(std::memory_order_acquire) != seen; };
        if (!spin(called)) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleeping_++;
            wake_.wait(lock, called);
            sleeping_--;
        }
        seen++;
        if (stopping_) return;
        call_with_standard_floats(call_, function_, thread);
        running_.fetch_sub(1, std::memory_order_release);
    }
}

void ThreadPool::wait_done(const Progress& progress, int count) {
    wait_for([&] { return progress.done.load(std::memory_order_acquire) >= count; });
}

void ThreadPool::barrier() {
    if (size_ == 1) return;
    const uint32_t before = passed_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        passed_.store(before + 1, std::memory_order_release);
        return;
    }
    wait_for([&] { return passed_.load(std::memory_order_acquire) != before; });
}

}  // namespace octavo
