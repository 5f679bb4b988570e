/* Programs on random words of a table that is spread over all processes.
 *
 * usage: irregular WORKLOAD FORM FIRST SECOND RUNS      FORM is agp or exchange
 *
 * WORKLOAD, and what FIRST and SECOND are, all of each process:
 *   histo      adds 1 to words               operations, words
 *   ig         reads words                   operations, words
 *   gups       HPCC's RandomAccess           words (a power of two), updates for each word
 *   randperm   a random permutation          darts, slots for each dart
 *   toposort   sorts a triangular matrix     rows, mean number of ones in each
 *   triangles  counts triangles of a graph   vertices, mean number of smaller neighbors of each
 *   bfs        searches a graph              vertices (a power of two), edges for each
 *   kmers      counts parts of reads         reads, bases of a part
 *
 * agp: one word at a time, with one-sided operations. exchange: buffers of 1024 items for each process, which all
 * processes exchange in step.
 *
 * The text of the program: that of a library (irregular_mpi.c or irregular_shmem.c), this one, irregular_graphs.c,
 * irregular_searches.c, and irregular_main.c.
 */
/* The most updates of gups that a process stores: a buffer has room for them. */
enum { AHEAD = ITEMS };

static int64_t first, second;
/* The words of a process that the workload names. */
static int64_t words;
/* The operations of a process in a round. */
static int64_t operations;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* A random number below `end`, the same for the same number of a process. */
static int64_t random_below(int64_t number, int64_t end)
{
    uint64_t place = (uint64_t)number * (uint64_t)size + (uint64_t)rank + 1;
    return (int64_t)(mixed(place * 0x9e3779b97f4a7c15) % (uint64_t)end);
}

static void *allocate(int64_t count, size_t bytes)
{
    void *memory = calloc((size_t)count, bytes);
    if (memory == NULL)
        fail("there is no memory");
    return memory;
}

static void clear_buffers(void)
{
    for (int to = 0; to < size; to++)
        out[to].count = 0;
}

/* Where items go: `next` returns the owner of the next item, or -1 if there is none now. */
typedef int next_item(int64_t *item);
typedef void take_item(int64_t item);

/* Sends items to their owners, until a round in which no process had one. `take` may make further items. */
static inline __attribute__((always_inline)) void in_step(next_item *next, take_item *take)
{
    int64_t item = 0, any = 1;
    int owner = -1;
    while (any) {
        clear_buffers();
        while ((owner >= 0 || (owner = next(&item)) >= 0) && out[owner].count < ITEMS) {
            out[owner].items[out[owner].count++] = item;
            owner = -1;
        }
        any = 0;
        for (int to = 0; to < size; to++)
            any |= out[to].count;
        for (int to = 0; to < size; to++)
            out[to].any = any;
        swap();
        any = 0;
        for (int from = 0; from < size; from++) {
            any |= in[from].any;
            for (int64_t at = 0; at < in[from].count; at++)
                take(in[from].items[at]);
        }
    }
}

/* histo and ig */

static uint32_t *owners, *places;
static int64_t *target, done;

static int64_t value(int64_t owner, int64_t place) { return 3 * (place * size + owner) + 1; }

static int64_t prepare_words(void)
{
    words = second;
    owners = allocate(first, sizeof *owners);
    places = allocate(first, sizeof *places);
    target = allocate(first, sizeof *target);
    for (int64_t at = 0; at < first; at++) {
        int64_t index = random_below(at, words * size);
        owners[at] = (uint32_t)(index % size);
        places[at] = (uint32_t)(index / size);
    }
    return words;
}

static void histo_begin(void) { memset(table, 0, (size_t)words * 8); }

static void histo_agp(void)
{
    for (int64_t at = 0; at < first; at++)
        word_increment((int)owners[at], places[at]);
}

static int histo_next(int64_t *item)
{
    if (done == first)
        return -1;
    *item = places[done];
    return (int)owners[done++];
}

static void histo_take(int64_t place) { table[place]++; }

static void histo_exchange(void)
{
    done = 0;
    in_step(histo_next, histo_take);
}

static void histo_check(void)
{
    int64_t sum = 0;
    for (int64_t place = 0; place < words; place++)
        sum += table[place];
    if (sum_of_all(sum) != first * size)
        fail("an update is lost");
}

static void ig_begin(void)
{
    for (int64_t place = 0; place < words; place++)
        table[place] = value(rank, place);
    memset(target, 0, (size_t)first * 8);
}

static void ig_agp(void)
{
    for (int64_t at = 0; at < first; at++)
        word_get(&target[at], (int)owners[at], places[at]);
}

static void ig_exchange(void)
{
    static int64_t (*asked)[ITEMS];
    if (asked == NULL)
        asked = allocate(size, sizeof *asked);
    int64_t at = 0, any = 1;
    while (any) {
        clear_buffers();
        for (; at < first && out[owners[at]].count < ITEMS; at++) {
            buffer *of_owner = &out[owners[at]];
            asked[owners[at]][of_owner->count] = at;
            of_owner->items[of_owner->count++] = places[at];
        }
        for (int to = 0; to < size; to++)
            out[to].any = at < first;
        int64_t counts[size];
        for (int to = 0; to < size; to++)
            counts[to] = out[to].count;
        swap();
        any = 0;
        for (int from = 0; from < size; from++) {
            any |= in[from].any;
            for (int64_t item = 0; item < in[from].count; item++)
                out[from].items[item] = table[in[from].items[item]];
        }
        swap();
        for (int from = 0; from < size; from++)
            for (int64_t item = 0; item < counts[from]; item++)
                target[asked[from][item]] = in[from].items[item];
    }
}

static void ig_check(void)
{
    for (int64_t at = 0; at < first; at++)
        if (target[at] != value(owners[at], places[at]))
            fail("a word is wrong");
}

/* gups: the powers of x modulo x^64 + x^2 + x + 1. The low bits of a power name the owner, the next ones the word. */

static uint64_t following(uint64_t x) { return x << 1 ^ (x >> 63 ? 7 : 0); }

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    for (int bit = 63; bit >= 0; bit--)
        sum = following(sum) ^ (b >> bit & 1 ? a : 0);
    return sum;
}

static uint64_t power(uint64_t exponent)
{
    uint64_t result = 1;
    for (int bit = 63; bit >= 0; bit--) {
        result = product(result, result);
        if (exponent >> bit & 1)
            result = following(result);
    }
    return result;
}

static int owner_of(uint64_t update) { return (int)(update & (uint64_t)(size - 1)); }
static int64_t place_of(uint64_t update) { return (int64_t)(update / (uint64_t)size & (uint64_t)(words - 1)); }

static int64_t gups_prepare(void)
{
    words = first;
    if ((words & (words - 1)) != 0 || (size & (size - 1)) != 0)
        fail("the words and the processes are no powers of two");
    operations = words * second;
    return words;
}

static void gups_begin(void)
{
    for (int64_t place = 0; place < words; place++)
        table[place] = place * size + rank;
}

static void gups_agp(void)
{
    uint64_t update = power((uint64_t)(rank * words * second));
    for (int64_t at = 0; at < words * second; at++) {
        update = following(update);
        word_xor(owner_of(update), place_of(update), (int64_t)update);
    }
}

static void gups_exchange(void)
{
    uint64_t update = power((uint64_t)(rank * words * second));
    for (int64_t at = 0; at < words * second; at += AHEAD) {
        clear_buffers();
        for (int64_t ahead = at; ahead < at + AHEAD && ahead < words * second; ahead++) {
            update = following(update);
            buffer *of_owner = &out[owner_of(update)];
            if (owner_of(update) == rank)
                table[place_of(update)] ^= (int64_t)update;
            else
                of_owner->items[of_owner->count++] = (int64_t)update;
        }
        swap();
        for (int from = 0; from < size; from++)
            for (int64_t item = 0; item < in[from].count; item++)
                table[place_of((uint64_t)in[from].items[item])] ^= in[from].items[item];
    }
}

/* All updates made again undo them. */
static void gups_check(void)
{
    uint64_t update = 1;
    for (int64_t at = 0; at < size * words * second; at++) {
        update = following(update);
        if (owner_of(update) == rank)
            table[place_of(update)] ^= (int64_t)update;
    }
    for (int64_t place = 0; place < words; place++)
        if (table[place] != place * size + rank)
            fail("an update is lost");
}

/* randperm: darts are their numbers plus 1. A dart on a slot that is taken is thrown again. */

static int64_t *darts, dart_count, thrown;

/* The permutation lies behind the slots. */
static int64_t randperm_prepare(void)
{
    words = first * second;
    darts = allocate(first * size, sizeof *darts);
    return words + first;
}

static void randperm_begin(void)
{
    memset(table, 0, (size_t)(words + first) * 8);
    for (int64_t dart = 0; dart < first; dart++)
        darts[dart] = rank * first + dart + 1;
    dart_count = first;
}

static int64_t standing(void)
{
    int64_t count = 0;
    for (int64_t slot = 0; slot < words; slot++)
        count += table[slot] != 0;
    return count;
}

static void randperm_agp(void)
{
    for (int64_t dart = 0; dart < first; dart++) {
        int64_t slot;
        do
            slot = random_below(thrown++, words * size);
        while (word_swap((int)(slot % size), slot / size, 0, darts[dart]) != 0);
    }
    all_done();
    int64_t index = sum_before(standing());
    for (int64_t slot = 0; slot < words; slot++)
        if (table[slot] != 0) {
            word_put((int)(index % size), words + index / size, table[slot]);
            index++;
        }
}

/* The place of an item is above its dart. */
enum { DART_BITS = 32 };

static int throw_next(int64_t *item)
{
    if (dart_count == 0)
        return -1;
    int64_t slot = random_below(thrown++, words * size);
    *item = slot / size << DART_BITS | darts[--dart_count];
    return (int)(slot % size);
}

static void throw_take(int64_t item)
{
    int64_t dart = item & ((1LL << DART_BITS) - 1), *slot = &table[item >> DART_BITS];
    if (*slot == 0)
        *slot = dart;
    else
        darts[dart_count++] = dart;
}

static int64_t place_slot, place_index;

static int place_next(int64_t *item)
{
    while (place_slot < words && table[place_slot] == 0)
        place_slot++;
    if (place_slot == words)
        return -1;
    *item = place_index / size << DART_BITS | table[place_slot++];
    return (int)(place_index++ % size);
}

static void place_take(int64_t item) { table[words + (item >> DART_BITS)] = item & ((1LL << DART_BITS) - 1); }

static void randperm_exchange(void)
{
    in_step(throw_next, throw_take);
    place_slot = 0;
    place_index = sum_before(standing());
    in_step(place_next, place_take);
}

/* Every number is there once: the sums of a hash agree. */
static void randperm_check(void)
{
    uint64_t sum = 0;
    for (int64_t at = 0; at < first; at++)
        sum += mixed((uint64_t)table[words + at]) - mixed((uint64_t)(rank * first + at + 1));
    if (sum_of_all((int64_t)sum) != 0)
        fail("a number is lost");
}
