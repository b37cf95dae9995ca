// Threads that run one function together, with barriers in it. They wait spinning for less than 50
// us, then yield, then sleep: the HTTP side shares the cores.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

// How far the threads are with a number of units.
struct alignas(64) Progress {
    std::atomic<int> next{0};  // taken so far, or more
    std::atomic<int> done{0};

    void restart() {
        next.store(0, std::memory_order_relaxed);
        done.store(0, std::memory_order_relaxed);
    }
};

class ThreadPool {
  public:
    // `threads` counts the caller of `run`, who is thread 0. Throws std::system_error when the
    // system gives no more threads.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return size_; }

    // Calls function(thread) once in each thread and returns when all have returned. The function
    // may not throw. One caller at a time.
    template <typename Function>
    void run(Function&& function) {
        using Plain = std::remove_reference_t<Function>;
        run_erased([](void* it, int thread) { (*static_cast<Plain*>(it))(thread); },
                   const_cast<void*>(static_cast<const void*>(&function)));
    }

    // Inside `run`: calls work(unit) for each of `count` units, once each, in whichever thread is
    // free, and returns when all are done. A thread that the system has put aside holds up nobody,
    // unless it is in the middle of a unit. All threads pass the same, fresh `progress`.
    template <typename Work>
    void share_out(Progress& progress, int count, const Work& work) {
        for (int unit = progress.next.fetch_add(1, std::memory_order_relaxed); unit < count;
             unit = progress.next.fetch_add(1, std::memory_order_relaxed)) {
            work(unit);
            progress.done.fetch_add(1, std::memory_order_release);
        }
        if (progress.done.load(std::memory_order_acquire) < count) wait_done(progress, count);
    }

    // Inside `run`: returns when all threads have called it. What was written before is seen after.
    void barrier();

  private:
    using Erased = void (*)(void* function, int thread);

    static void wait_done(const Progress& progress, int count);
    void run_erased(Erased call, void* function);
    void work(int thread);
    void stop();

    int size_;
    std::vector<std::thread> workers_;

    Erased call_ = nullptr;
    void* function_ = nullptr;
    std::atomic<bool> stopping_{false};

    // Each on a line of its own: every waiter polls one of them.
    alignas(64) std::atomic<uint32_t> round_{0};   // grows with every `run`
    alignas(64) std::atomic<int> running_{0};      // workers that have not returned
    alignas(64) std::atomic<int> arrived_{0};      // threads in the barrier
    alignas(64) std::atomic<uint32_t> passed_{0};  // barriers passed

    std::mutex mutex_;
    std::condition_variable wake_;
    int sleeping_ = 0;  // under the mutex
};

}  // namespace octavo
