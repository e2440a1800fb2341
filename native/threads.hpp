// The pool of threads that all kernels of one process share.
//
// The calling thread leads: it runs a block of the model as one region and offers each loop of it to the
// helpers. Whoever is there takes items; the leader goes on as soon as no item is left and nobody is at one.
// So a helper that the operating system keeps from the processor costs its help and nothing else. Helpers
// wait awake for some tens of microseconds, longer than Python needs to come with the next block, and then
// sleep. The leader is one of the pool, so no more threads compute than were asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "memory.hpp"

namespace ratoon {

class Pool;

// The leader's view of the pool, in a region.
class Worker {
public:
    explicit Worker(Pool& pool) : pool_(pool) {}

    // Run body(i) for i in [0, count) and wait until all are done. A body that takes a second argument gets
    // scratch memory of the thread that runs it. Each thread begins with a range of its own, so that it reads
    // weights in the order in which they lie, and then helps the others with theirs.
    template <class Body>
    void share(std::int64_t count, Body&& body);

private:
    Pool& pool_;
};

class Pool {
public:
    explicit Pool(int num_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return static_cast<int>(threads_.size()); }

    // Give every thread at least so much scratch. Not during a region.
    void reserve_scratch(std::size_t bytes) {
        for (Thread& thread : threads_) thread.scratch.reserve(bytes);
    }

    // Run region(worker) on the calling thread. Regions must not throw.
    template <class Region>
    void run(Region&& region) {
        Worker worker(*this);
        region(worker);
    }

private:
    friend class Worker;

    // What one thread takes from the loop that is open: items of its range. On a line of its own.
    struct alignas(64) Thread {
        std::atomic<std::int64_t> taken{0};
        Buffer scratch;
    };

    // The loop, and the function that lets thread `index` take items of it until none are left.
    struct Loop {
        void (*take)(Pool& pool, int index);
        const void* body;
        std::int64_t count;
    };

    template <class Body>
    static void take(Pool& pool, int index);

    void open();
    void close();  // and wait for those who are still at an item
    void help(int index);
    void wait_for_loop(std::uint64_t seen);
    void stop();

    std::vector<Thread> threads_;
    std::vector<std::thread> helpers_;
    Loop loop_{};

    // Helpers at the open loop; whether there is one; its number. One word, so that a helper enters only
    // what is open, and the leader's closing is final.
    static constexpr std::uint64_t kOpen = std::uint64_t{1} << 16, kNumber = kOpen << 1;
    alignas(64) std::atomic<std::uint64_t> state_{0};
    alignas(64) std::atomic<bool> asleep_{false};  // perhaps some helper
    std::atomic<std::uint32_t> wakes_{0};
    std::atomic<bool> stopping_{false};
};

template <class Body>
void Pool::take(Pool& pool, int index) {
    const Body& body = *static_cast<const Body*>(pool.loop_.body);
    const std::int64_t count = pool.loop_.count, threads = pool.size();
    for (std::int64_t t = 0; t < threads; ++t) {
        const std::int64_t owner = (index + t) % threads, end = (owner + 1) * count / threads,
                           begin = owner * count / threads;
        std::atomic<std::int64_t>& taken = pool.threads_[static_cast<std::size_t>(owner)].taken;
        if (begin + taken.load(std::memory_order_relaxed) >= end) continue;
        for (std::int64_t i; (i = begin + taken.fetch_add(1, std::memory_order_relaxed)) < end;) {
            if constexpr (std::is_invocable_v<const Body&, std::int64_t>) body(i);
            else body(i, pool.threads_[static_cast<std::size_t>(index)].scratch.data());
        }
    }
}

template <class Body>
void Worker::share(std::int64_t count, Body&& body) {
    pool_.loop_ = {&Pool::take<std::remove_reference_t<Body>>, &body, count};
    for (Pool::Thread& thread : pool_.threads_) thread.taken.store(0, std::memory_order_relaxed);
    const bool alone = count <= 1 || pool_.size() == 1;
    if (!alone) pool_.open();
    pool_.loop_.take(pool_, 0);
    if (!alone) pool_.close();
}

}  // namespace ratoon
