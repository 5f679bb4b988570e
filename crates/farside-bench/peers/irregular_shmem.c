/* Random words of a table that is spread over all processes, for OpenSHMEM.
 *
 * usage: irregular_shmem WORKLOAD FORM OPERATIONS WORDS RUNS      as in irregular.c
 *
 * agp: one word at a time, as bale does it: atomic additions, and gets that wait. exchange: buffers of 1024 items
 * for each process, which all processes exchange in step by shmem_alltoall64.
 */
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ITEMS = 1024 };

/* Items for one process. */
typedef struct {
    int64_t count, more;
    int64_t items[ITEMS];
} buffer;

static int rank, size;
static int64_t operations, words;
static uint32_t *owners, *places;
static long *table;
static int64_t *target;
static buffer *out, *in;
/* One for this exchange, one for the next: a process may enter it while others are in the former. */
static long syncs[2][SHMEM_ALLTOALL_SYNC_SIZE];

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    shmem_global_exit(1);
}

static void *checked(void *memory)
{
    if (memory == NULL)
        fail("there is no memory");
    return memory;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int64_t value(int64_t owner, int64_t place) { return 3 * (place * size + owner) + 1; }

static void histo_agp(void)
{
    for (int64_t at = 0; at < operations; at++)
        shmem_long_atomic_add(&table[places[at]], 1, (int)owners[at]);
    shmem_quiet();
}

static void ig_agp(void)
{
    for (int64_t at = 0; at < operations; at++)
        target[at] = shmem_long_g(&table[places[at]], (int)owners[at]);
}

/* Fills buffers from item `at` on until one is full, and notes which items they are if they are reads. Returns the next item. */
static int64_t fill(int64_t at, int reads, int64_t (*asked)[ITEMS])
{
    for (int to = 0; to < size; to++)
        out[to].count = 0;
    for (; at < operations; at++) {
        buffer *of_owner = &out[owners[at]];
        if (of_owner->count == ITEMS)
            break;
        if (reads)
            asked[owners[at]][of_owner->count] = at;
        of_owner->items[of_owner->count++] = places[at];
    }
    for (int to = 0; to < size; to++)
        out[to].more = at < operations;
    return at;
}

static void swap(void)
{
    static int turn;
    /* No process overwrites what another one still reads. */
    shmem_barrier_all();
    shmem_alltoall64(in, out, sizeof *out / 8, 0, 0, size, syncs[turn ^= 1]);
}

static void in_step(int reads)
{
    static int64_t (*asked)[ITEMS];
    if (asked == NULL)
        asked = checked(calloc((size_t)size, sizeof *asked));
    int64_t at = 0, more = 1;
    while (more) {
        at = fill(at, reads, asked);
        swap();
        more = 0;
        for (int from = 0; from < size; from++) {
            more |= in[from].more;
            for (int64_t item = 0; item < in[from].count; item++)
                if (reads)
                    out[from].items[item] = table[in[from].items[item]];
                else
                    table[in[from].items[item]]++;
        }
        if (!reads)
            continue;
        int64_t counts[size];
        for (int to = 0; to < size; to++)
            counts[to] = out[to].count;
        swap();
        for (int from = 0; from < size; from++)
            for (int64_t item = 0; item < counts[from]; item++)
                target[asked[from][item]] = in[from].items[item];
    }
}

static void histo_exchange(void) { in_step(0); }
static void ig_exchange(void) { in_step(1); }

static void check(int reads, int round)
{
    shmem_barrier_all();
    if (reads) {
        for (int64_t at = 0; at < operations; at++)
            if (target[at] != value(owners[at], places[at]))
                fail("a word is wrong");
        memset(target, 0, (size_t)operations * sizeof *target);
        return;
    }
    static long all;
    if (rank == 0)
        all = 0;
    shmem_barrier_all();
    long sum = 0;
    for (int64_t place = 0; place < words; place++)
        sum += table[place];
    shmem_long_atomic_add(&all, sum, 0);
    shmem_barrier_all();
    if (rank == 0 && all != (round + 1) * operations * size)
        fail("an update is lost");
}

int main(int count, char **arguments)
{
    shmem_init();
    rank = shmem_my_pe();
    size = shmem_n_pes();
    if (count != 6)
        fail("usage: irregular_shmem histo|ig agp|exchange OPERATIONS WORDS RUNS");
    int reads = strcmp(arguments[1], "ig") == 0, by_word = strcmp(arguments[2], "agp") == 0;
    operations = atoll(arguments[3]), words = atoll(arguments[4]);
    int runs = atoi(arguments[5]);
    if (operations < 1 || words < 1 || runs < 1)
        fail("a number is not at least 1");

    for (int turn = 0; turn < 2; turn++)
        for (int at = 0; at < SHMEM_ALLTOALL_SYNC_SIZE; at++)
            syncs[turn][at] = SHMEM_SYNC_VALUE;
    table = checked(shmem_malloc((size_t)words * sizeof *table));
    out = checked(shmem_malloc((size_t)size * sizeof *out));
    in = checked(shmem_malloc((size_t)size * sizeof *in));
    for (int64_t place = 0; place < words; place++)
        table[place] = reads ? value(rank, place) : 0;
    owners = checked(calloc((size_t)operations, sizeof *owners));
    places = checked(calloc((size_t)operations, sizeof *places));
    target = checked(calloc((size_t)operations, sizeof *target));
    for (int64_t at = 0; at < operations; at++) {
        uint64_t index = mixed((uint64_t)(rank * operations + at + 1) * 0x9e3779b97f4a7c15) % (uint64_t)(words * size);
        owners[at] = (uint32_t)(index % (uint64_t)size);
        places[at] = (uint32_t)(index / (uint64_t)size);
    }
    void (*work)(void) = reads ? (by_word ? ig_agp : ig_exchange) : (by_word ? histo_agp : histo_exchange);
    /* The first run touches the memory. */
    for (int run = 0; run <= runs; run++) {
        shmem_barrier_all();
        double start = now();
        work();
        shmem_barrier_all();
        double seconds = now() - start;
        check(reads, run);
        if (rank == 0 && run > 0)
            printf("openshmem items_per_s 1/s %.6g\n", (double)operations / seconds);
    }
    fflush(stdout);
    shmem_barrier_all();
    /* Not shmem_finalize: that of Open MPI 4.1.4 crashes where UCX has no network. */
    shmem_global_exit(0);
}
