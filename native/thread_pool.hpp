// The pool of threads that all kernels of one process share.
//
// The calling thread leads: it runs a module as one parallel region and offers each loop of it to the helper
// threads. Every helper that is awake takes items; the leader goes on as soon as all are done. So a helper that
// the operating system keeps from the processor costs its help and nothing else. Helpers spin for some tens of
// microseconds, longer than Python needs to call the next module, and then sleep. The leader is one of the
// pool, so no more threads compute than were asked for.
//
// A step has hundreds of loops of some microseconds, and a cache line takes up to a quarter of one from core
// to core. So each line has one writer as long as all goes well: the leader writes the offer, each thread what
// it has taken of its own range and what it has done. An item is taken with the number of its loop, which
// fails once the loop is over; so late helpers need not be waited for, nor counters be reset.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "memory.hpp"

namespace ratoon {

class ThreadPool;

// body(i), or body(i, scratch) if it wants that.
template <class Body>
void call(const Body& body, std::int64_t i, [[maybe_unused]] std::uint8_t* scratch) {
    if constexpr (std::is_invocable_v<const Body&, std::int64_t>) body(i);
    else body(i, scratch);
}

// What the leader does in a region: loops that the pool's threads share.
class ParallelRegion {
public:
    explicit ParallelRegion(ThreadPool& pool) : pool_(pool) {}

    // Run body(i) for i in [0, count) and wait until all are done. A body that takes a second argument gets
    // scratch memory of the thread that runs it. Each thread begins with a range of its own, so that it reads
    // weights in the order in which they lie, and then helps the others with theirs.
    template <class Body>
    void parallel_for(std::int64_t count, Body&& body);

    // The same for bodies so short that taking one at a time would take longer: rows.
    template <class Body>
    void parallel_for_rows(std::int64_t count, const Body& body);

private:
    ThreadPool& pool_;
};

class ThreadPool {
public:
    // `keeps_to_cores`: each helper keeps to a core of its own, if there are as many threads as cores.
    explicit ThreadPool(int num_threads, bool keeps_to_cores = false);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return static_cast<int>(threads_.size()); }

    // Give every thread at least so much scratch. Not during a region.
    void reserve_scratch(std::size_t bytes) {
        for (Thread& thread : threads_) thread.scratch.reserve(bytes);
    }

    // Run body(region) on the calling thread. Regions must not throw.
    template <class Body>
    void run(Body&& body) {
        ParallelRegion region(*this);
        body(region);
    }

private:
    friend class ParallelRegion;

    // The number of a loop (it would take months to come again) and, in the lower bits, a count of items.
    using Ticket = std::uint64_t;
    static constexpr int kCountBits = 24;
    static constexpr Ticket kCount = (Ticket{1} << kCountBits) - 1;

    // How many items of the thread's range were taken in a loop, and how many it has done itself, of whatever
    // range.
    struct Thread {
        alignas(64) std::atomic<Ticket> taken{0};
        alignas(64) std::atomic<Ticket> done{0};
        Buffer scratch;
    };

    // The loop, with the number of its items; the function that lets thread `index` do items until none are
    // left; its body.
    using Do = void (*)(ThreadPool& pool, int index, Ticket loop, const void* body);
    struct alignas(64) Offer {
        std::atomic<Ticket> loop{0};
        std::atomic<Do> run{nullptr};
        std::atomic<const void*> body{nullptr};
    };

    template <class Body>
    static void run(ThreadPool& pool, int index, Ticket loop, const void* body);

    Ticket open(Do run, const void* body, std::int64_t count);
    void wait_until_done(Ticket loop) const;
    bool is_done(Ticket loop) const;
    std::int64_t take(std::int64_t owner, Ticket loop, std::int64_t size);
    bool ends_soon(int index, Ticket loop) const;
    void help(int index);
    Ticket wait_for_loop(Ticket seen);
    void stop();

    std::vector<Thread> threads_;
    std::vector<std::thread> helpers_;
    Offer offer_;
    alignas(64) std::atomic<bool> asleep_{false};  // perhaps some helper
    std::atomic<std::uint32_t> wakes_{0};
    std::atomic<bool> stopping_{false};
};

template <class Body>
void ThreadPool::run(ThreadPool& pool, int index, Ticket loop, const void* shared) {
    const Body& body = *static_cast<const Body*>(shared);
    const auto count = static_cast<std::int64_t>(loop & kCount), threads = std::int64_t{pool.size()};
    Thread& self = pool.threads_[static_cast<std::size_t>(index)];
    Ticket done = loop - static_cast<Ticket>(count);
    for (std::int64_t t = 0; t < threads; ++t) {
        if (t == 1 && pool.ends_soon(index, loop)) return;
        const std::int64_t owner = (index + t) % threads, begin = owner * count / threads,
                           size = (owner + 1) * count / threads - begin;
        for (std::int64_t i; (i = pool.take(owner, loop, size)) < size;) {
            call(body, begin + i, self.scratch.data());
            self.done.store(++done, std::memory_order_release);
        }
    }
}

// The number of an item of the thread's range that is not taken yet, or the range's size where there is none, or
// where the loop is long over.
inline std::int64_t ThreadPool::take(std::int64_t owner, Ticket loop, std::int64_t size) {
    std::atomic<Ticket>& word = threads_[static_cast<std::size_t>(owner)].taken;
    const Ticket none = loop & ~kCount;
    Ticket taken = word.load(std::memory_order_relaxed);
    for (;;) {
        const Ticket first = taken > none ? taken : none;
        if (first >= none + static_cast<Ticket>(size)) return size;
        if (word.compare_exchange_weak(taken, first + 1, std::memory_order_relaxed))
            return static_cast<std::int64_t>(first - none);
    }
}

template <class Body>
void ParallelRegion::parallel_for(std::int64_t count, Body&& body) {
    if (count <= 1 || pool_.size() == 1) {
        for (std::int64_t i = 0; i < count; ++i) call(body, i, pool_.threads_.front().scratch.data());
        return;
    }
    using Plain = std::remove_reference_t<Body>;
    const ThreadPool::Ticket loop = pool_.open(&ThreadPool::run<Plain>, &body, count);
    ThreadPool::run<Plain>(pool_, 0, loop, &body);
    pool_.wait_until_done(loop);
}

template <class Body>
void ParallelRegion::parallel_for_rows(std::int64_t count, const Body& body) {
    const std::int64_t run = std::clamp<std::int64_t>(count / (8 * pool_.size()), 1, 8);
    parallel_for((count + run - 1) / run, [&](std::int64_t item, std::uint8_t* scratch) {
        for (std::int64_t i = item * run; i < std::min(count, (item + 1) * run); ++i) call(body, i, scratch);
    });
}

}  // namespace ratoon
