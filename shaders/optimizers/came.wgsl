// CAME, confidence-guided adaptive memory efficient optimization (Luo et al. 2023, arXiv:2307.02047, algorithm 2), with
// the semantics of the authors' code: averages of means, the residual only of matrices, decay decoupled.
struct Hyper {
    lr: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    one_minus_beta3: f32,
    eps1: f32,
    eps2: f32,
    clip_threshold: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, clipping: f32 }

struct State { exp_avg: f32 }

struct Row { exp_avg_sq_row: f32, exp_avg_res_row: f32 }

// Of a vector, exp_avg_sq_col is the average of each element.
struct Column { exp_avg_sq_col: f32, exp_avg_res_col: f32 }

// Means of the rows, which follow the same averages.
struct Matrix { mean_exp_avg_sq_row: f32, mean_exp_avg_res_row: f32 }

struct LineMeasured { square: f32 }

struct Measured { update_sq: f32 }

struct Updated { param: f32, state: State }

fn advance(s: Scalars) -> Scalars {
    return Scalars(s.step + 1.0, 1.0);
}

fn measure_lines(grad: f32) -> LineMeasured {
    return LineMeasured(grad * grad);
}

fn averaged_square(average: f32, measured: LineMeasured, h: Hyper, size: f32) -> f32 {
    return average + h.one_minus_beta2 * (measured.square / size + h.eps1 - average);
}

fn settle_row(row: Row, measured: LineMeasured, h: Hyper, size: f32) -> Row {
    return Row(averaged_square(row.exp_avg_sq_row, measured, h, size), row.exp_avg_res_row);
}

fn settle_column(column: Column, measured: LineMeasured, h: Hyper, size: f32) -> Column {
    return Column(averaged_square(column.exp_avg_sq_col, measured, h, size), column.exp_avg_res_col);
}

fn settle_matrix(matrix: Matrix, measured: LineMeasured, h: Hyper, size: f32) -> Matrix {
    return Matrix(averaged_square(matrix.mean_exp_avg_sq_row, measured, h, size), matrix.mean_exp_avg_res_row);
}

// The root of the product of all three, which may be too small for an f32 where gradients are 0.
fn factored_root(row: f32, mean_row: f32, column: f32) -> f32 {
    return sqrt(row / mean_row) * sqrt(column);
}

fn unclipped(grad: f32, row: Row, column: Column, matrix: Matrix, is_matrix: bool) -> f32 {
    var root = sqrt(column.exp_avg_sq_col);
    if is_matrix {
        root = factored_root(row.exp_avg_sq_row, matrix.mean_exp_avg_sq_row, column.exp_avg_sq_col);
    }
    // A row or column of zeros has averages of about eps1, too small to divide by beside large ones.
    return select(grad / root, 0.0, grad == 0.0);
}

fn measure(grad: f32, row: Row, column: Column, matrix: Matrix, is_matrix: bool) -> Measured {
    let update = unclipped(grad, row, column, matrix, is_matrix);
    return Measured(update * update);
}

fn settle(s: Scalars, measured: Measured, h: Hyper, size: f32) -> Scalars {
    return Scalars(s.step, max(1.0, sqrt(measured.update_sq / size) / h.clip_threshold));
}

fn averaged_update(state: State, update: f32, h: Hyper) -> f32 {
    return state.exp_avg + h.one_minus_beta1 * (update - state.exp_avg);
}

fn measure_lines_again(
    grad: f32, state: State, row: Row, column: Column, matrix: Matrix, is_matrix: bool, h: Hyper, s: Scalars,
) -> LineMeasured {
    let update = unclipped(grad, row, column, matrix, is_matrix) / s.clipping;
    let residual = update - averaged_update(state, update, h);
    return LineMeasured(residual * residual);
}

fn averaged_residual(average: f32, measured: LineMeasured, h: Hyper, size: f32) -> f32 {
    return average + h.one_minus_beta3 * (measured.square / size + h.eps2 - average);
}

fn settle_row_again(row: Row, measured: LineMeasured, h: Hyper, size: f32) -> Row {
    return Row(row.exp_avg_sq_row, averaged_residual(row.exp_avg_res_row, measured, h, size));
}

fn settle_column_again(column: Column, measured: LineMeasured, h: Hyper, size: f32) -> Column {
    return Column(column.exp_avg_sq_col, averaged_residual(column.exp_avg_res_col, measured, h, size));
}

fn settle_matrix_again(matrix: Matrix, measured: LineMeasured, h: Hyper, size: f32) -> Matrix {
    return Matrix(matrix.mean_exp_avg_sq_row, averaged_residual(matrix.mean_exp_avg_res_row, measured, h, size));
}

fn update(
    param: f32,
    grad: f32,
    state: State,
    row: Row,
    column: Column,
    matrix: Matrix,
    is_matrix: bool,
    h: Hyper,
    s: Scalars,
) -> Updated {
    let update = unclipped(grad, row, column, matrix, is_matrix) / s.clipping;
    let exp_avg = averaged_update(state, update, h);
    var step = exp_avg;
    if is_matrix {
        step = exp_avg / factored_root(row.exp_avg_res_row, matrix.mean_exp_avg_res_row, column.exp_avg_res_col);
    }
    return Updated(param - h.lr * (h.weight_decay * param + step), State(exp_avg));
}
