// SPDX-License-Identifier: GPL-3.0-or-later
/** Errors: a negative status tells the program what kind it is, one sentence tells the person.
 *  A NaN, an overflow or a diverged run is a result and never passes through here. */
#ifndef NH_ERR_H
#define NH_ERR_H

enum nh_status {
    NH_OK = 0,
    NH_FAILED = -1, /**< input or output, memory, broken file: exit code 1 */
    NH_USAGE = -2,  /**< what the user asked for does not exist or contradicts itself: exit code 2 */
};

/** Records one sentence (what, where, what would work; no newline) for this thread and returns status. */
int nh_fail(enum nh_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The last sentence of this thread; never NULL. */
const char *nh_error(void);

/** Ends the program for want of memory, where no status can be returned. Any thread may call it, inside a parallel region too.
 *  The sentence is nh_error(); what `end` of nh_on_no_memory does comes first, then exit code 1. */
_Noreturn void nh_no_memory(void);

/** What nh_no_memory calls: prints nh_error(), removes what is half done. It allocates nothing, and may run in any thread while
 *  others are still at work. Without it nh_no_memory prints the sentence alone. */
void nh_on_no_memory(void (*end)(void));

/** p, or nh_no_memory() where it is NULL. */
static inline void *nh_have(void *p)
{
    if (!p)
        nh_no_memory();
    return p;
}

#endif
