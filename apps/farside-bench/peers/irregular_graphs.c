/* Sparse matrices of zeros and ones; see irregular.c. Rows and columns go round robin over the processes. */

/* The indices of the ones of some rows: row `begin`, and each `step`-th one after it. */
typedef struct {
    int64_t begin, step, rows;
    int64_t *starts;
    int32_t *ones;
} matrix;

/* The most rows of a matrix, for all processes: items have room for their numbers. */
enum { INDEX_BITS = 21 };
#define INDEX_MASK ((1LL << INDEX_BITS) - 1)

static int owner_of_index(int64_t index) { return (int)(index % size); }

typedef void take_one(int64_t row, int64_t column);

/* Names the ones of a row of a random matrix below its diagonal, in order; `mean` of them in a mean row. */
static void random_ones(int64_t row, int64_t mean, take_one *take)
{
    double share = 2.0 * (double)mean / (double)(first * size);
    double scale = 1 / log1p(-(share < 0.5 ? share : 0.5));
    uint64_t state = mixed((uint64_t)row + 1);
    for (int64_t column = 0;; column++) {
        state += 0x9e3779b97f4a7c15;
        column += (int64_t)(log((double)((mixed(state) >> 11) + 1) * 0x1p-53) * scale);
        if (column >= row || mean == 0)
            return;
        take(row, column);
    }
}

static matrix *filling;
static int64_t *ones_of, *filled;

static void count_one(int64_t row, int64_t column)
{
    (void)column;
    ones_of[owner_of_index(row)]++;
    if (row % filling->step == filling->begin)
        filling->starts[row / filling->step + 1]++;
}

static void fill_one(int64_t row, int64_t column)
{
    if (row % filling->step == filling->begin)
        filling->ones[filled[row / filling->step]++] = (int32_t)column;
}

/* Makes a part of the matrix whose ones `name_all` names. Returns the number of ones of the process with the most. */
static int64_t make_matrix(matrix *made, int64_t begin, int64_t step, void (*name_all)(take_one *take))
{
    filling = made;
    *made = (matrix){.begin = begin, .step = step, .rows = first * size / step};
    made->starts = allocate(made->rows + 1, sizeof *made->starts);
    ones_of = allocate(size, sizeof *ones_of);
    name_all(count_one);
    for (int64_t row = 0; row < made->rows; row++)
        made->starts[row + 1] += made->starts[row];
    made->ones = allocate(made->starts[made->rows] + 1, sizeof *made->ones);
    filled = allocate(made->rows, sizeof *filled);
    memcpy(filled, made->starts, (size_t)made->rows * sizeof *filled);
    name_all(fill_one);
    int64_t most = 0;
    for (int of = 0; of < size; of++)
        most = ones_of[of] > most ? ones_of[of] : most;
    free(filled);
    free(ones_of);
    return most;
}

/* Puts the rows of a process into the table, from a place on. */
static void publish(const matrix *of, int64_t place)
{
    for (int64_t row = 0; row <= first; row++)
        table[place + row] = of->starts[row];
    for (int64_t at = 0; at < of->starts[first]; at++)
        table[place + first + 1 + at] = of->ones[at];
}

/* A row in the table of its owner. */
typedef struct {
    int owner;
    int64_t next, end;
} remote_row;

static remote_row row_at(int64_t place, int64_t index)
{
    int owner = owner_of_index(index);
    int64_t ones = place + first + 1, row = place + index / size;
    return (remote_row){owner, ones + word_read(owner, row), ones + word_read(owner, row + 1)};
}

/* toposort: the rows of a lower triangular matrix with ones on its diagonal, turned by half a turn, then rows and columns
 * permuted. A row with one column left is a pivot: it and the column get the last free place, and the column is taken
 * from all rows. For each row the number of columns left and their sum are enough. */

static matrix by_rows, by_columns;
static int32_t *row_names, *column_names;
/* Where the parts of the table begin; the number of pivots is its first word. */
static int64_t left_at, row_places_at, column_places_at, columns_at;

static int32_t *permutation(int64_t number)
{
    int64_t count = first * size;
    int32_t *names = allocate(count, sizeof *names);
    for (int64_t at = 0; at < count; at++) {
        int64_t other = (int64_t)(mixed((uint64_t)(number * count + at) + 1) % (uint64_t)(at + 1));
        names[at] = names[other];
        names[other] = (int32_t)at;
    }
    return names;
}

static take_one *named;

static void name_row(int64_t row, int64_t column)
{
    int64_t last = first * size - 1;
    named(row_names[last - row], column_names[last - column]);
}

static void name_column(int64_t row, int64_t column)
{
    int64_t last = first * size - 1;
    named(column_names[last - column], row_names[last - row]);
}

static void name_triangle(take_one *take)
{
    for (int64_t row = 0; row < first * size; row++) {
        random_ones(row, second - 1, take);
        take(row, row);
    }
}

static void all_by_rows(take_one *take)
{
    named = take;
    name_triangle(name_row);
}

static void all_by_columns(take_one *take)
{
    named = take;
    name_triangle(name_column);
}

static int64_t toposort_prepare(void)
{
    if (first * size > INDEX_MASK)
        fail("there are too many rows");
    row_names = permutation(1);
    column_names = permutation(2);
    make_matrix(&by_rows, rank, size, all_by_rows);
    int64_t most = make_matrix(&by_columns, rank, size, all_by_columns);
    left_at = 1;
    row_places_at = left_at + first;
    column_places_at = row_places_at + first;
    columns_at = column_places_at + first;
    return columns_at + first + 1 + most;
}

static void toposort_begin(void)
{
    memset(table, 0, (size_t)columns_at * 8);
    publish(&by_columns, columns_at);
}

/* A stack of pivots that are ready, or of columns whose rows are to be told. */
typedef struct {
    int64_t row, column, level;
} pivot;

static pivot *ready;
static int64_t ready_count;

static void add_ready(pivot added)
{
    if (ready == NULL)
        ready = allocate(first * size, sizeof *ready);
    ready[ready_count++] = added;
}

enum { LEFT_BITS = 40 };
#define LEFT_ONE (1LL << LEFT_BITS)

static void toposort_agp(void)
{
    int64_t last = first * size - 1;
    for (int64_t row = 0; row < first; row++) {
        int64_t sum = 0;
        for (int64_t at = by_rows.starts[row]; at < by_rows.starts[row + 1]; at++)
            sum += LEFT_ONE + by_rows.ones[at];
        table[left_at + row] = sum;
        if (sum >> LEFT_BITS == 1)
            add_ready((pivot){row * size + rank, sum % LEFT_ONE, 0});
    }
    all_done();
    while (ready_count > 0) {
        pivot next = ready[--ready_count];
        int64_t place = last - word_fetch_add(0, 0, 1), taken = LEFT_ONE + next.column;
        word_put(owner_of_index(next.row), row_places_at + next.row / size, place);
        word_put(owner_of_index(next.column), column_places_at + next.column / size, place);
        for (remote_row rows = row_at(columns_at, next.column); rows.next < rows.end; rows.next++) {
            int64_t row = word_read(rows.owner, rows.next);
            int64_t left = word_fetch_add(owner_of_index(row), left_at + row / size, -taken) - taken;
            if (left >> LEFT_BITS == 1)
                add_ready((pivot){row, left % LEFT_ONE, 0});
        }
    }
}

/* With buffers: the owner of a pivot's row tells the owner of its column, which tells the owners of all rows with that
 * column. A pivot is one level above those that took columns from its row. */

typedef struct {
    int64_t count, sum, level;
} rest;

static rest *rests;
/* The pivots of a process; the columns that it was told, and how far it has told their rows. */
static pivot *pivots, *told;
static int64_t pivot_count, pivots_sent, told_count, told_done, told_at;

enum { TO_ROW = 1 };

static int64_t packed(int64_t place, int64_t column, int64_t level)
{
    return (place << INDEX_BITS | column) << INDEX_BITS | level;
}

static int sort_next(int64_t *item)
{
    for (; told_done < told_count; told_done++) {
        int64_t place = told[told_done].column / size;
        if (told_at < by_columns.starts[place + 1] - by_columns.starts[place]) {
            int64_t row = by_columns.ones[by_columns.starts[place] + told_at++];
            *item = packed(row / size, told[told_done].column, told[told_done].level) << 1 | TO_ROW;
            return owner_of_index(row);
        }
        told_at = 0;
    }
    if (pivots_sent == pivot_count)
        return -1;
    pivot next = pivots[pivots_sent++];
    *item = packed(0, next.column, next.level) << 1;
    return owner_of_index(next.column);
}

static void sort_take(int64_t item)
{
    int64_t level = item >> 1 & INDEX_MASK, column = item >> (1 + INDEX_BITS) & INDEX_MASK;
    if (!(item & TO_ROW)) {
        told[told_count++] = (pivot){0, column, level};
        return;
    }
    int64_t row = item >> (1 + 2 * INDEX_BITS) & INDEX_MASK;
    rest *of_row = &rests[row];
    of_row->level = of_row->level > level + 1 ? of_row->level : level + 1;
    of_row->sum -= column;
    if (--of_row->count == 1)
        pivots[pivot_count++] = (pivot){row, of_row->sum, of_row->level};
}

static int columns_next(int64_t *item)
{
    if (pivots_sent == pivot_count)
        return -1;
    pivot next = pivots[pivots_sent++];
    *item = next.column << INDEX_BITS | table[row_places_at + next.row];
    return owner_of_index(next.column);
}

static void columns_take(int64_t item)
{
    table[column_places_at + (item >> INDEX_BITS) / size] = item & INDEX_MASK;
}

static void toposort_exchange(void)
{
    if (rests == NULL) {
        rests = allocate(first, sizeof *rests);
        pivots = allocate(first, sizeof *pivots);
        told = allocate(first, sizeof *told);
    }
    pivot_count = pivots_sent = told_count = told_done = told_at = 0;
    for (int64_t row = 0; row < first; row++) {
        rests[row] = (rest){by_rows.starts[row + 1] - by_rows.starts[row], 0, 0};
        for (int64_t at = by_rows.starts[row]; at < by_rows.starts[row + 1]; at++)
            rests[row].sum += by_rows.ones[at];
        if (rests[row].count == 1)
            pivots[pivot_count++] = (pivot){row, rests[row].sum, 0};
    }
    in_step(sort_next, sort_take);
    /* Pivots of a lower level go to later places. */
    int64_t placed = 0;
    for (int64_t level = 0; placed < first * size; level++) {
        int64_t own = 0;
        for (int64_t at = 0; at < pivot_count; at++)
            own += pivots[at].level == level;
        int64_t place = first * size - 1 - placed - sum_before(own);
        for (int64_t at = 0; at < pivot_count; at++)
            if (pivots[at].level == level)
                table[row_places_at + pivots[at].row] = place--;
        placed += sum_of_all(own);
    }
    pivots_sent = 0;
    in_step(columns_next, columns_take);
}

/* Every place is used once by a row and once by a column, and no one is below the diagonal. */
static void toposort_check(void)
{
    int64_t count = first * size, *column_places = allocate(count, sizeof *column_places);
    for (int64_t column = 0; column < count; column++)
        word_get(&column_places[column], owner_of_index(column), column_places_at + column / size);
    all_done();
    uint64_t rows_sum = 0, columns_sum = 0;
    for (int64_t row = 0; row < first; row++) {
        uint64_t expected = mixed((uint64_t)(rank * first + row));
        rows_sum += mixed((uint64_t)table[row_places_at + row]) - expected;
        columns_sum += mixed((uint64_t)table[column_places_at + row]) - expected;
        for (int64_t at = by_rows.starts[row]; at < by_rows.starts[row + 1]; at++)
            if (table[row_places_at + row] > column_places[by_rows.ones[at]])
                fail("a one is below the diagonal");
    }
    if (sum_of_all((int64_t)rows_sum) != 0 || sum_of_all((int64_t)columns_sum) != 0)
        fail("a place is not used once");
    free(column_places);
}

/* triangles: row i has the neighbors of vertex i with smaller numbers. */

static matrix neighbors;
static int64_t found, expected;
static int is_expected;

static void all_neighbors(take_one *take)
{
    for (int64_t vertex = 0; vertex < first * size; vertex++)
        random_ones(vertex, second, take);
}

static int has(const matrix *of, int64_t row, int64_t column)
{
    for (int64_t at = of->starts[row]; at < of->starts[row + 1]; at++)
        if (of->ones[at] == column)
            return 1;
    return 0;
}

static int64_t triangles_prepare(void)
{
    if (first * size > INDEX_MASK)
        fail("there are too many vertices");
    return first + 1 + make_matrix(&neighbors, rank, size, all_neighbors);
}

static void triangles_begin(void)
{
    publish(&neighbors, 0);
    found = 0;
}

static void triangles_agp(void)
{
    for (int64_t vertex = 0; vertex < first; vertex++)
        for (int64_t at = neighbors.starts[vertex]; at < neighbors.starts[vertex + 1]; at++)
            for (remote_row row = row_at(0, neighbors.ones[at]); row.next < row.end; row.next++)
                found += has(&neighbors, vertex, word_read(row.owner, row.next));
}

static int64_t pair_vertex, pair_larger, pair_smaller;

/* For each two neighbors of a vertex, the owner of the larger one looks whether they are neighbors. */
static int pairs_next(int64_t *item)
{
    for (; pair_vertex < first; pair_vertex++) {
        int64_t start = neighbors.starts[pair_vertex], end = neighbors.starts[pair_vertex + 1];
        for (; start + pair_larger < end; pair_larger++) {
            int64_t larger = neighbors.ones[start + pair_larger];
            if (pair_smaller < pair_larger) {
                *item = larger / size << INDEX_BITS | neighbors.ones[start + pair_smaller++];
                return owner_of_index(larger);
            }
            pair_smaller = 0;
        }
        pair_larger = 0;
    }
    return -1;
}

static void pairs_take(int64_t item) { found += has(&neighbors, item >> INDEX_BITS, item & INDEX_MASK); }

static void triangles_exchange(void)
{
    pair_vertex = pair_larger = pair_smaller = 0;
    in_step(pairs_next, pairs_take);
}

/* Counts once more, another way: marks the neighbors of each vertex, in the whole graph. */
static int64_t triangles_of_whole(void)
{
    matrix whole;
    make_matrix(&whole, 0, 1, all_neighbors);
    int64_t *seen_by = allocate(whole.rows, sizeof *seen_by), triangles = 0;
    for (int64_t vertex = 0; vertex < whole.rows; vertex++) {
        for (int64_t at = whole.starts[vertex]; at < whole.starts[vertex + 1]; at++)
            seen_by[whole.ones[at]] = vertex + 1;
        for (int64_t at = whole.starts[vertex]; at < whole.starts[vertex + 1]; at++)
            for (int64_t of = whole.starts[whole.ones[at]]; of < whole.starts[whole.ones[at] + 1]; of++)
                triangles += seen_by[whole.ones[of]] == vertex + 1;
    }
    free(seen_by);
    free(whole.starts);
    free(whole.ones);
    return triangles;
}

static void triangles_check(void)
{
    if (!is_expected)
        expected = triangles_of_whole();
    is_expected = 1;
    if (sum_of_all(found) != expected)
        fail("a triangle is lost");
}
