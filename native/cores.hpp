// Which core a thread of the pool runs on.
#pragma once

namespace ratoon {

// If there are as many threads as cores that this process may use, keep the calling thread, the pool's `index`th,
// to a core of its own. Threads that wait for each other must run at the same time, and a system that puts two
// of them on one core, if only for a moment, halves the speed of both. With fewer threads the system chooses.
void keep_to_core(int index, int num_threads);

}  // namespace ratoon
