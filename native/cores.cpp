#include "cores.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace ratoon {

#if defined(__linux__)
void keep_to_core(int index, int num_threads) {
    cpu_set_t usable, own;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) != num_threads) return;
    int core = 0;
    for (int before = index; before > 0 || !CPU_ISSET(core, &usable); ++core) before -= CPU_ISSET(core, &usable);
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    sched_setaffinity(0, sizeof own, &own);  // where that is forbidden, nothing is lost but speed
}
#else
void keep_to_core(int, int) {}
#endif

}  // namespace ratoon
