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

}  // namespace

Pool::Pool(int num_threads) : threads_(static_cast<std::size_t>(num_threads)) {
    try {
        for (int i = 1; i < num_threads; ++i) helpers_.emplace_back([this, i] { help(i); });
    } catch (...) {  // no more threads to be had
        stop();
        throw;
    }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
    stopping_.store(true);
    wakes_.fetch_add(1);
    wakes_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void Pool::open() {
    // Nobody is inside, and nobody enters while it is closed, so the word is the leader's.
    state_.store((state_.load(std::memory_order_relaxed) + kNumber) | kOpen);
    if (asleep_.load()) {
        asleep_.store(false);
        wakes_.fetch_add(1);
        wakes_.notify_all();
    }
}

void Pool::close() {
    std::uint64_t inside = state_.fetch_and(~kOpen) % kOpen;
    for (int spins = 0; inside != 0; ++spins) {
        // A helper that takes so long has lost its processor. It may well be waiting for this one.
        if (spins < kSpins) pause();
        else std::this_thread::yield();
        inside = state_.load(std::memory_order_acquire) % kOpen;
    }
}

void Pool::help(int index) {
    keep_to_core(index, size());
    for (std::uint64_t seen = 0;;) {
        wait_for_loop(seen);
        if (stopping_.load()) return;
        std::uint64_t state = state_.load(std::memory_order_relaxed);
        if (!(state & kOpen) || state / kNumber == seen) continue;
        if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acquire)) continue;
        seen = state / kNumber;
        loop_.take(*this, index);
        state_.fetch_sub(1, std::memory_order_release);
    }
}

// Wait for an open loop of another number: awake for a while, then asleep.
void Pool::wait_for_loop(std::uint64_t seen) {
    const auto found = [&] {
        const std::uint64_t state = state_.load();
        return stopping_.load() || ((state & kOpen) && state / kNumber != seen);
    };
    for (int i = 0; i < kSpins; ++i) {
        if (found()) return;
        pause();
    }
    // The leader opens before it looks for sleepers, and a sleeper is counted before it looks for a loop.
    const std::uint32_t wake = wakes_.load();
    asleep_.store(true);
    if (!found()) wakes_.wait(wake);
}

}  // namespace ratoon
