// Threads for one piece of work, as loading has: begun for it and gone with it.
#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

// Calls `work` in so many threads at once, one of them this one. Rethrows what the first of them
// threw, once all have ended.
template <typename Work>
void in_threads(size_t count, const Work& work) {
    std::exception_ptr failure;
    std::mutex guard;
    const auto guarded = [&]() noexcept {
        try {
            work();
        } catch (...) {
            const std::lock_guard<std::mutex> locked(guard);
            if (!failure) failure = std::current_exception();
        }
    };
    std::vector<std::thread> helpers;
    try {
        while (helpers.size() + 1 < count) helpers.emplace_back(guarded);
    } catch (const std::exception&) {
        // The system has no more threads for us, or no memory for them: those there are do it all.
    }
    guarded();
    for (std::thread& helper : helpers) helper.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace octavo
