#include "threads.hpp"

#include "cores.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ratoon {
namespace {

// About 50 microseconds: longer than the gap between two blocks, too short to matter to anybody else.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

// Wait until `counter` is no longer `old`: awake for a while, then asleep.
void wait_for_change(const std::atomic<std::uint32_t>& counter, std::uint32_t old) {
    for (int i = 0; i < kSpins; ++i) {
        if (counter.load(std::memory_order_acquire) != old) return;
        pause();
    }
    counter.wait(old, std::memory_order_acquire);
}

}  // namespace

Pool::Pool(int num_threads)
    : scratch_(static_cast<std::size_t>(num_threads)),
      missing_(num_threads),
      counters_(static_cast<std::size_t>(num_threads)) {
    try {
        for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (...) {  // no more threads to be had
        stop();
        throw;
    }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
    stopping_ = true;
    start();
    for (std::thread& thread : threads_) thread.join();
}

void Pool::start() {
    regions_.fetch_add(1);
    regions_.notify_all();
}

void Pool::meet() {
    const std::uint32_t meeting = meetings_.load(std::memory_order_relaxed);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        for (Counter& counter : counters_) counter.taken.store(0, std::memory_order_relaxed);
        missing_.store(size(), std::memory_order_relaxed);
        meetings_.fetch_add(1);
        meetings_.notify_all();
    } else {
        wait_for_change(meetings_, meeting);
    }
}

void Pool::work(int index) {
    keep_to_core(index, size());
    Worker worker(*this, index);
    for (std::uint32_t seen = 0;; ++seen) {
        wait_for_change(regions_, seen);
        if (stopping_) return;
        region_(worker);
        meet();
    }
}

}  // namespace ratoon
