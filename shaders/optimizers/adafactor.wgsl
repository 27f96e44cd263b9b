// Adafactor (Shazeer & Stern 2018, arXiv:1804.04235, algorithms 4 and 5), with the semantics of torch.optim.Adafactor:
// means in the place of sums, epsilon1 as the least value of what is divided by, lr as the largest relative step.
import package::lib::math::precise_pow;

struct Hyper {
    lr: f32,
    beta2_decay: f32,
    eps1: f32,
    eps1_squared: f32,
    eps2: f32,
    d: f32,
    weight_decay: f32,
}

struct Scalars { step: f32, one_minus_beta2: f32, relative_step: f32, update_size: f32 }

struct Row { row_var: f32 }

// Of a vector: the variance of each element.
struct Column { col_var: f32 }

// The mean of row_var, which follows the same average.
struct Matrix { mean_row_var: f32 }

struct LineMeasured { grad_sq: f32 }

struct Measured { param_sq: f32, update_sq: f32 }

struct Updated { param: f32 }

fn advance(s: Scalars, h: Hyper) -> Scalars {
    let step = s.step + 1.0;
    return Scalars(step, precise_pow(step, h.beta2_decay), min(h.lr, 1.0 / sqrt(step)), 0.0);
}

fn measure_lines(grad: f32) -> LineMeasured {
    return LineMeasured(grad * grad);
}

fn averaged(variance: f32, measured: LineMeasured, s: Scalars, size: f32) -> f32 {
    return variance + s.one_minus_beta2 * (measured.grad_sq / size - variance);
}

fn settle_row(row: Row, measured: LineMeasured, s: Scalars, size: f32) -> Row {
    return Row(averaged(row.row_var, measured, s, size));
}

fn settle_column(column: Column, measured: LineMeasured, s: Scalars, size: f32) -> Column {
    return Column(averaged(column.col_var, measured, s, size));
}

fn settle_matrix(matrix: Matrix, measured: LineMeasured, s: Scalars, size: f32) -> Matrix {
    return Matrix(averaged(matrix.mean_row_var, measured, s, size));
}

fn unclipped(grad: f32, row: Row, column: Column, matrix: Matrix, is_matrix: bool, h: Hyper) -> f32 {
    var variance = column.col_var;
    if is_matrix {
        variance = row.row_var / max(matrix.mean_row_var, h.eps1) * column.col_var;
    }
    return grad / sqrt(max(variance, h.eps1_squared));
}

fn measure(
    param: f32, grad: f32, row: Row, column: Column, matrix: Matrix, is_matrix: bool, h: Hyper,
) -> Measured {
    let update = unclipped(grad, row, column, matrix, is_matrix, h);
    return Measured(param * param, update * update);
}

fn settle(s: Scalars, measured: Measured, h: Hyper, size: f32) -> Scalars {
    let alpha = max(h.eps2, sqrt(measured.param_sq / size)) * s.relative_step;
    let clipping = max(1.0, sqrt(measured.update_sq / size) / h.d);
    return Scalars(s.step, s.one_minus_beta2, s.relative_step, alpha / clipping);
}

fn update(
    param: f32, grad: f32, row: Row, column: Column, matrix: Matrix, is_matrix: bool, h: Hyper, s: Scalars,
) -> Updated {
    let step = s.update_size * unclipped(grad, row, column, matrix, is_matrix, h);
    return Updated(param - (h.lr * h.weight_decay * param + step));
}
