/* Jacobi's iteration on a square field, by MPI: each process has so many rows, and neighbors exchange the rows at their edges.
 *
 * usage: stencil SIZE STEPS RUNS OVERLAP      OVERLAP is 1 or 0
 *
 * Four ways to exchange: messages (isend); one-sided and active, between fences of all (active-fence) or by post, start, complete and
 * wait of neighbors (active-pscw); one-sided and passive, with the window locked once, put and flush, and flags that are looked at
 * (passive). Without OVERLAP a step exchanges and then computes; with it, the inside is computed while the rows travel.
 *
 * Each run begins with the same field. In turns with it the steps are done without any exchange, which is what computing takes.
 */
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ABOVE, BELOW, SIDES };

/* A process's rows, with a row above and below of neighbors or of the border, and a column of the border on both sides. */
static int size, rows, first_row, rank, processes, yields;
static double *now, *next;
/* The processes that have the rows above and below; MPI_PROC_NULL at the border. */
static int neighbors[SIDES];
static MPI_Group neighbor_group;

/* What others put into: the rows of two steps, since a neighbor may be one step ahead, and the steps whose rows are there. */
struct halo {
    uint64_t ready[2][SIDES][8];
    double cells[];
};
static struct halo *halo;
static MPI_Win window;
static uint64_t steps_done;

static double *row(double *field, int index) { return field + (size_t)index * (size + 2); }

static double start_value(int row, int column) { return (double)((row * 31L + column * 17L) % 97) / 97; }

static void reset(void)
{
    for (int r = 0; r < rows + 2; r++)
        for (int column = 0; column < size + 2; column++)
            row(now, r)[column] = row(next, r)[column] = start_value(first_row + r, column);
}

static void sweep(int first, int end)
{
    for (int r = first; r < end; r++) {
        const double *restrict above = row(now, r - 1), *restrict here = row(now, r), *restrict below = row(now, r + 1);
        double *restrict out = row(next, r);
        for (int column = 1; column <= size; column++)
            out[column] = ((above[column] + below[column]) + (here[column - 1] + here[column + 1])) * 0.25;
    }
}

/* The same whoever has which rows: sums of words do not depend on their order. */
static uint32_t checksum(void)
{
    uint64_t sum = 0, all;
    for (int r = 1; r <= rows; r++)
        for (int column = 1; column <= size; column++) {
            uint64_t bits, place = (uint64_t)(first_row + r) * (uint64_t)(size + 2) + (uint64_t)column;
            memcpy(&bits, &row(now, r)[column], sizeof bits);
            sum += bits * (2 * place + 1);
        }
    MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return (uint32_t)(all ^ all >> 32);
}

/* The rows at the edges that neighbors want, and where those of neighbors go. */
static double *edge(int side) { return row(now, side == ABOVE ? 1 : rows) + 1; }
static double *ghost(int side) { return row(now, side == ABOVE ? 0 : rows + 1) + 1; }
static size_t cells_at(int parity, int side) { return (size_t)(parity * SIDES + side) * (size_t)size; }

static MPI_Request requests[2 * SIDES];

static void begin_isend(void)
{
    for (int side = 0; side < SIDES; side++) {
        MPI_Irecv(ghost(side), size, MPI_DOUBLE, neighbors[side], 0, MPI_COMM_WORLD, &requests[2 * side]);
        MPI_Isend(edge(side), size, MPI_DOUBLE, neighbors[side], 0, MPI_COMM_WORLD, &requests[2 * side + 1]);
    }
}

static void end_isend(void) { MPI_Waitall(2 * SIDES, requests, MPI_STATUSES_IGNORE); }

static void take_halo(int parity)
{
    for (int side = 0; side < SIDES; side++)
        if (neighbors[side] != MPI_PROC_NULL)
            memcpy(ghost(side), halo->cells + cells_at(parity, side), (size_t)size * sizeof(double));
}

/* What lies above us is below for the one above. */
static void put_edges(int parity)
{
    for (int side = 0; side < SIDES; side++) {
        MPI_Aint place = (MPI_Aint)(offsetof(struct halo, cells) + cells_at(parity, 1 - side) * sizeof(double));
        MPI_Put(edge(side), size, MPI_DOUBLE, neighbors[side], place, size, MPI_DOUBLE, window);
    }
}

/* A fence ends the step before and begins this one: rows that come now are of the other parity than those that were taken. */
static void begin_fence(void) { put_edges(steps_done & 1); }

static void end_fence(void)
{
    MPI_Win_fence(0, window);
    take_halo(steps_done & 1);
}

static void first_fence(void) { MPI_Win_fence(MPI_MODE_NOPRECEDE, window); }
static void last_fence(void) { MPI_Win_fence(MPI_MODE_NOSUCCEED, window); }

static void begin_pscw(void)
{
    MPI_Win_post(neighbor_group, 0, window);
    MPI_Win_start(neighbor_group, 0, window);
    put_edges(steps_done & 1);
    MPI_Win_complete(window);
}

static void end_pscw(void)
{
    MPI_Win_wait(window);
    take_halo(steps_done & 1);
}

static void begin_passive(void)
{
    static uint64_t step;
    int parity = steps_done & 1;
    put_edges(parity);
    step = steps_done + 1;
    for (int side = 0; side < SIDES; side++) {
        if (neighbors[side] == MPI_PROC_NULL)
            continue;
        MPI_Win_flush(neighbors[side], window);
        MPI_Aint place = (MPI_Aint)((char *)halo->ready[parity][1 - side] - (char *)halo);
        MPI_Accumulate(&step, 1, MPI_UINT64_T, neighbors[side], place, 1, MPI_UINT64_T, MPI_REPLACE, window);
        MPI_Win_flush(neighbors[side], window);
    }
}

static void end_passive(void)
{
    int parity = steps_done & 1;
    for (int side = 0; side < SIDES; side++) {
        if (neighbors[side] == MPI_PROC_NULL)
            continue;
        while (*(volatile uint64_t *)halo->ready[parity][side] < steps_done + 1) {
            MPI_Win_sync(window);
            if (yields)
                sched_yield();
        }
    }
    MPI_Win_sync(window);
    take_halo(parity);
}

static void lock_all(void) { MPI_Win_lock_all(MPI_MODE_NOCHECK, window); }
static void unlock_all(void) { MPI_Win_unlock_all(window); }

static void nothing(void) {}

/* Nanoseconds that a step takes, and those that are spent with others. */
static double run(void (*begin)(void), void (*end)(void), int steps, int overlap, double *exchange_ns)
{
    double exchange = 0;
    reset();
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int step = 0; step < steps; step++) {
        double at = MPI_Wtime();
        begin();
        if (overlap) {
            exchange += MPI_Wtime() - at;
            sweep(2, rows);
            at = MPI_Wtime();
        }
        end();
        exchange += MPI_Wtime() - at;
        if (overlap) {
            sweep(1, 2);
            if (rows > 1)
                sweep(rows, rows + 1);
        } else {
            sweep(1, rows + 1);
        }
        steps_done++;
        double *swapped = now;
        now = next;
        next = swapped;
    }
    double times[2] = {MPI_Wtime() - start, exchange}, worst[2];
    MPI_Allreduce(times, worst, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    *exchange_ns = worst[1] / steps * 1e9;
    return worst[0] / steps * 1e9;
}

static int number(const char *text)
{
    int value = atoi(text);
    if (value < 1) {
        fprintf(stderr, "%s is not at least 1\n", text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return value;
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (count != 5) {
        fprintf(stderr, "usage: stencil SIZE STEPS RUNS OVERLAP\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size = number(arguments[1]);
    int steps = number(arguments[2]), runs = number(arguments[3]), overlap = strcmp(arguments[4], "1") == 0;
    cpu_set_t cpus;
    yields = sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) > 1 && CPU_COUNT(&cpus) < processes;

    first_row = (int)((long)size * rank / processes);
    rows = (int)((long)size * (rank + 1) / processes) - first_row;
    neighbors[ABOVE] = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    neighbors[BELOW] = rank + 1 < processes ? rank + 1 : MPI_PROC_NULL;
    size_t bytes = (size_t)(rows + 2) * (size_t)(size + 2) * sizeof(double);
    now = malloc(bytes);
    next = malloc(bytes);
    if (now == NULL || next == NULL || rows < 1) {
        fprintf(stderr, "%zu bytes are not there, or there are fewer rows than processes\n", 2 * bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int near[SIDES], near_count = 0;
    for (int side = 0; side < SIDES; side++)
        if (neighbors[side] != MPI_PROC_NULL)
            near[near_count++] = neighbors[side];
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, near_count, near, &neighbor_group);
    MPI_Aint window_bytes = (MPI_Aint)(sizeof(struct halo) + cells_at(2, 0) * sizeof(double));
    MPI_Win_allocate(window_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &halo, &window);
    memset(halo, 0, (size_t)window_bytes);
    MPI_Barrier(MPI_COMM_WORLD);

    struct {
        const char *name;
        void (*begin)(void), (*end)(void);
        /* Before the first run and after the last. */
        void (*open)(void), (*close)(void);
    } ways[] = {
        {"openmpi-isend", begin_isend, end_isend, nothing, nothing},
        {"openmpi-active-fence", begin_fence, end_fence, first_fence, last_fence},
        {"openmpi-active-pscw", begin_pscw, end_pscw, nothing, nothing},
        {"openmpi-passive", begin_passive, end_passive, lock_all, unlock_all},
    };
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        ways[way].open();
        /* The first run is for connections to be made. */
        for (int at = 0; at <= runs; at++) {
            double none, exchange, plain_exchange;
            double alone = run(nothing, nothing, steps, 0, &none);
            double plain = run(ways[way].begin, ways[way].end, steps, 0, &plain_exchange);
            double taken = plain;
            exchange = plain_exchange;
            if (overlap)
                taken = run(ways[way].begin, ways[way].end, steps, 1, &exchange);
            uint32_t sum = checksum();
            if (rank != 0 || at == 0)
                continue;
            const char *peer = ways[way].name;
            printf("%s step_ns ns %.1f\n%s compute_ns ns %.1f\n", peer, taken, peer, alone);
            printf("%s exchange_ns ns %.1f\n%s checksum 1 %u\n", peer, exchange, peer, sum);
            if (overlap)
                printf("%s plain_ns ns %.1f\n", peer, plain);
        }
        ways[way].close();
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
