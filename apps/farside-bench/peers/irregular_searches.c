/* Searches of graphs and counts of k-mers; see irregular.c. */

/* bfs: breadth-first searches of a Kronecker graph as Graph500's, whose labels are permuted. Each round begins at another
 * vertex with a neighbor. The table has the parents of a process's vertices, or -1, and then its rows of neighbors. */

static matrix adjacent;
static int32_t *labels, *order_of_keys;
static int64_t key, keys_tried;
/* The vertices of the present level and those of the next one. */
static int64_t *level, *next_level, level_count, next_count;
/* Of the process with the most edges. */
static int64_t most_ends;

static double random_unit(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15;
    return (double)(mixed(*state) >> 11) * 0x1p-53;
}

static void edge(int64_t number, int64_t *from, int64_t *to)
{
    uint64_t state = mixed((uint64_t)number + 1);
    *from = *to = 0;
    for (int64_t bit = 1; bit < first * size; bit *= 2) {
        double place = random_unit(&state);
        *from = 2 * *from + (place > 0.76);
        *to = 2 * *to + ((place > 0.57 && place <= 0.76) || place > 0.95);
    }
    *from = labels[*from], *to = labels[*to];
}

static void name_edges(take_one *take)
{
    for (int64_t number = 0; number < first * size * second; number++) {
        int64_t from, to;
        edge(number, &from, &to);
        take(from, to);
        take(to, from);
    }
}

static int64_t bfs_prepare(void)
{
    int64_t vertices = first * size;
    if (vertices > INDEX_MASK || (vertices & (vertices - 1)) != 0)
        fail("the number of vertices is no power of two, or too large");
    labels = permutation(3), order_of_keys = permutation(4);
    most_ends = make_matrix(&adjacent, rank, size, name_edges);
    level = allocate(vertices, sizeof *level);
    next_level = allocate(vertices, sizeof *next_level);
    return first + first + 1 + most_ends;
}

static int has_neighbor(int64_t place)
{
    for (int64_t at = adjacent.starts[place]; at < adjacent.starts[place + 1]; at++)
        if (adjacent.ones[at] != place * size + rank)
            return 1;
    return 0;
}

static void bfs_begin(void)
{
    int64_t left = first * size;
    do {
        if (left-- == 0)
            fail("no vertex has a neighbor");
        key = order_of_keys[keys_tried++ % (first * size)];
    } while (sum_of_all(owner_of_index(key) == rank && has_neighbor(key / size)) == 0);
    for (int64_t place = 0; place < first; place++)
        table[place] = -1;
    publish(&adjacent, first);
    level_count = next_count = 0;
    if (owner_of_index(key) == rank)
        table[key / size] = key;
}

static void to_next_level(void)
{
    int64_t *reached = next_level;
    next_level = level, level = reached;
    level_count = next_count, next_count = 0;
}

/* A process claims vertices, and searches on from those that it was first to claim. */
static void bfs_agp(void)
{
    if (owner_of_index(key) == rank)
        level[level_count++] = key;
    while (sum_of_all(level_count) > 0) {
        for (int64_t at = 0; at < level_count; at++)
            for (remote_row row = row_at(first, level[at]); row.next < row.end; row.next++) {
                int64_t other = word_read(row.owner, row.next);
                int owner = owner_of_index(other);
                if (word_read(owner, other / size) == -1 && word_swap(owner, other / size, -1, level[at]) == -1)
                    next_level[next_count++] = other;
            }
        all_done();
        to_next_level();
    }
}

/* With buffers: levels have the places of vertices. The owner of a vertex is told once by each process. */

static uint64_t *told_bits;
static int64_t level_at, neighbor_at;

static void reach(int64_t place, int64_t parent)
{
    if (table[place] == -1) {
        table[place] = parent;
        next_level[next_count++] = place;
    }
}

static int reach_next(int64_t *item)
{
    for (; level_at < level_count; level_at++, neighbor_at = -1) {
        int64_t place = level[level_at], parent = place * size + rank;
        if (neighbor_at < 0)
            neighbor_at = adjacent.starts[place];
        while (neighbor_at < adjacent.starts[place + 1]) {
            int64_t other = adjacent.ones[neighbor_at++];
            if (owner_of_index(other) == rank) {
                reach(other / size, parent);
            } else if (!(told_bits[other / 64] >> (other % 64) & 1)) {
                told_bits[other / 64] |= 1ULL << (other % 64);
                *item = other / size << INDEX_BITS | parent;
                return owner_of_index(other);
            }
        }
    }
    return -1;
}

static void reach_take(int64_t item) { reach(item >> INDEX_BITS, item & INDEX_MASK); }

static void bfs_exchange(void)
{
    if (told_bits == NULL)
        told_bits = allocate(first * size / 64 + 1, sizeof *told_bits);
    memset(told_bits, 0, (size_t)(first * size / 64 + 1) * sizeof *told_bits);
    if (owner_of_index(key) == rank)
        level[level_count++] = key / size;
    while (sum_of_all(level_count) > 0) {
        level_at = 0, neighbor_at = -1;
        in_step(reach_next, reach_take);
        to_next_level();
    }
}

/* The five checks of Graph500, each process for its own vertices. */
static void bfs_check(void)
{
    int64_t vertices = first * size, ends = 0;
    int64_t *parents = allocate(vertices, sizeof *parents), *depths = allocate(vertices, sizeof *depths);
    for (int64_t vertex = 0; vertex < vertices; vertex++)
        word_get(&parents[vertex], owner_of_index(vertex), vertex / size);
    all_done();
    /* A depth is one more than that of the parent, and that of the key 1. */
    if (parents[key] != key)
        fail("the key is not its own parent");
    depths[key] = 1;
    for (int64_t vertex = 0; vertex < vertices; vertex++) {
        int64_t above = vertex, steps = 0;
        for (; parents[vertex] != -1 && depths[above] == 0; above = parents[above])
            if (parents[above] == -1 || ++steps > vertices)
                fail("the parents form no tree");
        int64_t depth = depths[above] + steps;
        for (int64_t below = vertex; parents[vertex] != -1 && depths[below] == 0; below = parents[below])
            depths[below] = depth--;
    }
    for (int64_t place = 0; place < first; place++) {
        int64_t vertex = place * size + rank;
        int has_parent = vertex == key || parents[vertex] == -1;
        for (int64_t at = adjacent.starts[place]; at < adjacent.starts[place + 1]; at++) {
            int64_t other = adjacent.ones[at], difference = depths[vertex] - depths[other];
            if ((depths[vertex] == 0) != (depths[other] == 0) || difference < -1 || difference > 1)
                fail("an edge skips a level");
            has_parent |= parents[vertex] == other;
        }
        if (!has_parent)
            fail("an edge was invented");
        if (depths[vertex] != 0)
            ends += adjacent.starts[place + 1] - adjacent.starts[place];
    }
    /* The edges of the component, of which each has two ends. */
    operations = sum_of_all(ends) / 2 / size;
    free(parents);
    free(depths);
}

/* kmers: the parts of `second` bases of all reads of a random genome, where a part and its reverse complement are one. The
 * result is how many were read once, twice and so on. */

enum { READ_BASES = 100, COVERAGE = 30, BASES_PER_ERROR = 200, COUNT_MAX = 100 };

static uint8_t *genome, *reads;
static int64_t bases, slots, bars[COUNT_MAX + 1], *expected_bars;
/* With buffers: the k-mers of a process, inverted so that none is 0, and their counts. */
static uint64_t *names;
static uint32_t *counts;

static int64_t random_of(uint64_t *state, int64_t end)
{
    *state += 0x9e3779b97f4a7c15;
    return (int64_t)(mixed(*state) % (uint64_t)end);
}

/* A read of either strand, with errors. */
static void make_read(int64_t number, uint8_t *read)
{
    uint64_t state = mixed((uint64_t)number + 1);
    int64_t begin = random_of(&state, bases - READ_BASES + 1), is_other = random_of(&state, 2);
    for (int64_t at = 0; at < READ_BASES; at++) {
        int base = is_other ? 3 - genome[begin + READ_BASES - 1 - at] : genome[begin + at];
        int error = random_of(&state, BASES_PER_ERROR) == 0 ? 1 + (int)random_of(&state, 3) : 0;
        read[at] = (uint8_t)((base + error) % 4);
    }
}

/* The reads are walked base by base. */
typedef struct {
    const uint8_t *read;
    int64_t at, left;
    uint64_t forward, backward;
} walk;

static inline __attribute__((always_inline)) int next_kmer(walk *on, uint64_t *kmer)
{
    uint64_t mask = UINT64_MAX >> (64 - 2 * second);
    while (on->left > 0) {
        if (on->at == READ_BASES) {
            on->at = 0, on->forward = on->backward = 0;
            on->read += READ_BASES;
            on->left--;
            continue;
        }
        uint64_t base = on->read[on->at++];
        on->forward = (on->forward << 2 | base) & mask;
        on->backward = on->backward >> 2 | (3 - base) << (2 * (second - 1));
        if (on->at >= second) {
            *kmer = on->forward < on->backward ? on->forward : on->backward;
            return 1;
        }
    }
    return 0;
}

static inline __attribute__((always_inline)) void count_kmer(uint64_t kmer, uint64_t *of, uint32_t *to, int64_t count)
{
    int64_t slot = (int64_t)(mixed(kmer) & (uint64_t)(count - 1));
    while (of[slot] != 0 && of[slot] != ~kmer)
        slot = (slot + 1) & (count - 1);
    of[slot] = ~kmer;
    to[slot]++;
}

static int64_t power_of_two(int64_t least)
{
    int64_t power = 1;
    while (power < least)
        power *= 2;
    return power;
}

static void clear_bars(void) { memset(bars, 0, sizeof bars); }

static void add_bar(int64_t count)
{
    if (count > 0)
        bars[count < COUNT_MAX ? count : COUNT_MAX]++;
}

static void sum_bars(void)
{
    for (int count = 0; count <= COUNT_MAX; count++)
        bars[count] = sum_of_all(bars[count]);
}

/* Counts all reads by one process. */
static void expect_bars(void)
{
    int64_t all = first * size, room = power_of_two(all * (READ_BASES + 1 - second) / 2);
    uint8_t *read = allocate(all, READ_BASES);
    uint64_t *of = allocate(room, sizeof *of), kmer;
    uint32_t *to = allocate(room, sizeof *to);
    for (int64_t number = 0; number < all; number++)
        make_read(number, read + number * READ_BASES);
    for (walk on = {read, 0, all, 0, 0}; next_kmer(&on, &kmer);)
        count_kmer(kmer, of, to, room);
    clear_bars();
    for (int64_t slot = 0; slot < room; slot++)
        add_bar(to[slot]);
    expected_bars = allocate(COUNT_MAX + 1, sizeof *expected_bars);
    memcpy(expected_bars, bars, sizeof bars);
    free(read);
    free(of);
    free(to);
}

static int64_t kmers_prepare(void)
{
    if (second > 32 || second > READ_BASES)
        fail("a k-mer has at most 32 bases");
    bases = first * size * READ_BASES / COVERAGE;
    bases = bases < 2 * READ_BASES ? 2 * READ_BASES : bases;
    genome = allocate(bases, 1);
    uint64_t state = 1;
    for (int64_t at = 0; at < bases; at++)
        genome[at] = (uint8_t)random_of(&state, 4);
    reads = allocate(first, READ_BASES);
    for (int64_t at = 0; at < first; at++)
        make_read(rank * first + at, reads + at * READ_BASES);
    expect_bars();
    operations = first * (READ_BASES + 1 - second);
    /* Most k-mers of a genome are read often, so half of the slots are enough by far. */
    slots = power_of_two(operations * size / 2);
    slots = slots < size ? size : slots;
    names = allocate(slots, sizeof *names);
    counts = allocate(slots, sizeof *counts);
    words = slots / size;
    return 2 * words;
}

static void kmers_begin(void)
{
    memset(table, 0, (size_t)words * 2 * 8);
    clear_bars();
}

static void kmers_agp(void)
{
    uint64_t kmer;
    for (walk on = {reads, 0, first, 0, 0}; next_kmer(&on, &kmer);) {
        int64_t slot = (int64_t)(mixed(kmer) & (uint64_t)(slots - 1)), name = (int64_t)~kmer, before;
        while (1) {
            before = word_read((int)(slot % size), slot / size);
            if (before == 0)
                before = word_swap((int)(slot % size), slot / size, 0, name);
            if (before == 0 || before == name)
                break;
            slot = (slot + 1) & (slots - 1);
        }
        word_increment((int)(slot % size), words + slot / size);
    }
    all_done();
    for (int64_t place = 0; place < words; place++)
        add_bar(table[words + place]);
    sum_bars();
}

static walk own_walk;

static int kmer_next(int64_t *item)
{
    uint64_t kmer;
    while (next_kmer(&own_walk, &kmer)) {
        /* Not the hash of the table: its low bits would be alike at an owner. */
        int owner = (int)((kmer * 0x9e3779b97f4a7c15 >> 32) * (uint64_t)size >> 32);
        if (owner != rank) {
            *item = (int64_t)kmer;
            return owner;
        }
        count_kmer(kmer, names, counts, slots / size);
    }
    return -1;
}

static void kmer_take(int64_t item) { count_kmer((uint64_t)item, names, counts, slots / size); }

static void kmers_exchange(void)
{
    memset(names, 0, (size_t)(slots / size) * sizeof *names);
    memset(counts, 0, (size_t)(slots / size) * sizeof *counts);
    own_walk = (walk){reads, 0, first, 0, 0};
    in_step(kmer_next, kmer_take);
    for (int64_t slot = 0; slot < slots / size; slot++)
        add_bar(counts[slot]);
    sum_bars();
}

static void kmers_check(void)
{
    if (memcmp(bars, expected_bars, sizeof bars) != 0)
        fail("the counts are those of other k-mers");
}
