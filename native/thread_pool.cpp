#include "thread_pool.hpp"

#include "cores.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ratoon {
namespace {

// About 50 microseconds: longer than the gap between two modules, too short to slow other processes.
constexpr int kSpins = 2000;

// Half a microsecond.
constexpr int kPatience = 32;

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, bool keeps_to_cores) : threads_(static_cast<std::size_t>(num_threads)) {
    try {
        for (int i = 1; i < num_threads; ++i) {
            helpers_.emplace_back([this, i, keeps_to_cores] {
                if (keeps_to_cores) keep_to_core(i, size());
                help(i);
            });
        }
    } catch (...) {  // no more threads to be had
        stop();
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    stopping_.store(true);
    wakes_.fetch_add(1);
    wakes_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

ThreadPool::Ticket ThreadPool::open(Do run, const void* body, std::int64_t count) {
    offer_.run.store(run, std::memory_order_relaxed);
    offer_.body.store(body, std::memory_order_relaxed);
    const Ticket last = offer_.loop.load(std::memory_order_relaxed),
                 loop = (last | kCount) + 1 + static_cast<Ticket>(count);
    offer_.loop.store(loop, std::memory_order_release);
    // A helper that falls asleep at this very moment is woken by the next loop; the fence against that costs more.
    if (asleep_.load(std::memory_order_relaxed)) {
        asleep_.store(false);
        wakes_.fetch_add(1);
        wakes_.notify_all();
    }
    return loop;
}

bool ThreadPool::is_done(Ticket loop) const {
    Ticket missing = loop & kCount;
    for (const Thread& thread : threads_) {
        const Ticket done = thread.done.load(std::memory_order_acquire);
        if ((done ^ loop) <= kCount) missing -= done & kCount;
    }
    return missing == 0;
}

void ThreadPool::wait_until_done(Ticket loop) const {
    for (int spins = 0; !is_done(loop); ++spins) {
        // A helper that takes so long has lost its processor. It may well be waiting for this one.
        if (spins < kSpins) pause();
        else std::this_thread::yield();
    }
}

// A thread has come to the end of its own range. Looking at another's takes the line from it, so there is a
// moment's patience before that: is all done, or, for a helper, is there another loop?
bool ThreadPool::ends_soon(int index, Ticket loop) const {
    for (int i = 0; i < kPatience; ++i) {
        if (index == 0 ? is_done(loop) : offer_.loop.load(std::memory_order_relaxed) != loop) return true;
        pause();
    }
    return false;
}

void ThreadPool::help(int index) {
    for (Ticket loop = 0;;) {
        loop = wait_for_loop(loop);
        if (stopping_.load()) return;
        // If the leader has gone on meanwhile, these are a later loop's, and of this one nothing is left to take.
        const Do run = offer_.run.load(std::memory_order_relaxed);
        const void* body = offer_.body.load(std::memory_order_relaxed);
        run(*this, index, loop, body);
    }
}

// Wait for another loop than that: awake for a while, then asleep.
ThreadPool::Ticket ThreadPool::wait_for_loop(Ticket seen) {
    for (;;) {
        for (int i = 0; i < kSpins; ++i) {
            const Ticket loop = offer_.loop.load(std::memory_order_acquire);
            if (loop != seen || stopping_.load()) return loop;
            pause();
        }
        // A sleeper is counted before it looks again.
        const std::uint32_t wake = wakes_.load();
        asleep_.store(true);
        if (offer_.loop.load() == seen && !stopping_.load()) wakes_.wait(wake);
    }
}

}  // namespace ratoon
