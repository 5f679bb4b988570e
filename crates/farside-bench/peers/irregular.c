/* Random words of a table that is spread over all processes.
 *
 * usage: irregular WORKLOAD FORM OPERATIONS WORDS RUNS      WORKLOAD is histo or ig, FORM agp or exchange
 *
 * histo adds 1 to words, ig reads them. agp: one word at a time, with one-sided operations. exchange: buffers of
 * 1024 items for each process, which all processes exchange in step by MPI_Alltoall.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS = 1024 };

/* Items for one process. */
typedef struct {
    int64_t count, more;
    int64_t items[ITEMS];
} buffer;

static int rank, size;
static int64_t operations, words;
static uint32_t *owners, *places;
static int64_t *table, *target;
static MPI_Win window;
static buffer *out, *in;

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
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

static int64_t value(int64_t owner, int64_t place) { return 3 * (place * size + owner) + 1; }

static void histo_agp(void)
{
    static const int64_t one = 1;
    for (int64_t at = 0; at < operations; at++)
        MPI_Accumulate(&one, 1, MPI_INT64_T, (int)owners[at], places[at], 1, MPI_INT64_T, MPI_SUM, window);
    MPI_Win_flush_all(window);
}

static void ig_agp(void)
{
    for (int64_t at = 0; at < operations; at++)
        MPI_Get(&target[at], 1, MPI_INT64_T, (int)owners[at], places[at], 1, MPI_INT64_T, window);
    MPI_Win_flush_all(window);
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
    MPI_Alltoall(out, sizeof *out, MPI_BYTE, in, sizeof *in, MPI_BYTE, MPI_COMM_WORLD);
}

static void in_step(int reads)
{
    static int64_t (*asked)[ITEMS];
    if (asked == NULL)
        asked = allocate((size_t)size, sizeof *asked);
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
    MPI_Barrier(MPI_COMM_WORLD);
    if (reads) {
        for (int64_t at = 0; at < operations; at++)
            if (target[at] != value(owners[at], places[at]))
                fail("a word is wrong");
        memset(target, 0, (size_t)operations * sizeof *target);
        return;
    }
    int64_t sum = 0, all;
    for (int64_t place = 0; place < words; place++)
        sum += table[place];
    MPI_Allreduce(&sum, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (all != (round + 1) * operations * size)
        fail("an update is lost");
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count != 6)
        fail("usage: irregular histo|ig agp|exchange OPERATIONS WORDS RUNS");
    int reads = strcmp(arguments[1], "ig") == 0, by_word = strcmp(arguments[2], "agp") == 0;
    operations = atoll(arguments[3]), words = atoll(arguments[4]);
    int runs = atoi(arguments[5]);
    if (operations < 1 || words < 1 || runs < 1)
        fail("a number is not at least 1");

    MPI_Win_allocate(words * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &table, &window);
    for (int64_t place = 0; place < words; place++)
        table[place] = reads ? value(rank, place) : 0;
    owners = allocate((size_t)operations, sizeof *owners);
    places = allocate((size_t)operations, sizeof *places);
    target = allocate((size_t)operations, sizeof *target);
    out = allocate((size_t)size, sizeof *out);
    in = allocate((size_t)size, sizeof *in);
    for (int64_t at = 0; at < operations; at++) {
        uint64_t index = mixed((uint64_t)(rank * operations + at + 1) * 0x9e3779b97f4a7c15) % (uint64_t)(words * size);
        owners[at] = (uint32_t)(index % (uint64_t)size);
        places[at] = (uint32_t)(index / (uint64_t)size);
    }
    void (*work)(void) = reads ? (by_word ? ig_agp : ig_exchange) : (by_word ? histo_agp : histo_exchange);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    /* The first run touches the memory. */
    for (int run = 0; run <= runs; run++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        work();
        MPI_Barrier(MPI_COMM_WORLD);
        double seconds = MPI_Wtime() - start;
        MPI_Win_sync(window);
        check(reads, run);
        if (rank == 0 && run > 0)
            printf("openmpi items_per_s 1/s %.6g\n", (double)operations / seconds);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
