// SM3-II (Anil et al. 2019, arXiv:1901.11150), with the semantics of optax.sm3: the cover is that of the rows and the
// columns of each matrix, and of the elements of a vector; the momentum averages the scaled gradients.
override use_momentum: bool = false;

struct Hyper { lr: f32, momentum: f32, one_minus_momentum: f32, eps: f32 }

struct State { momentum_buffer: f32 }

struct Row { mu_row: f32 }

// Of a vector: that of each element.
struct Column { mu_col: f32 }

struct LineMeasured { max_nu: f32 }

struct Updated { param: f32, state: State }

fn accumulated(grad: f32, row: Row, column: Column, is_matrix: bool) -> f32 {
    var mu = column.mu_col;
    if is_matrix {
        mu = min(row.mu_row, column.mu_col);
    }
    return mu + grad * grad;
}

fn measure_lines(grad: f32, row: Row, column: Column, is_matrix: bool) -> LineMeasured {
    return LineMeasured(accumulated(grad, row, column, is_matrix));
}

fn settle_row(measured: LineMeasured) -> Row {
    return Row(measured.max_nu);
}

fn settle_column(measured: LineMeasured) -> Column {
    return Column(measured.max_nu);
}

fn update(param: f32, grad: f32, state: State, row: Row, column: Column, is_matrix: bool, h: Hyper) -> Updated {
    let nu = accumulated(grad, row, column, is_matrix);
    var step = select(0.0, grad / sqrt(nu + h.eps), nu > 0.0);
    var buffer = state.momentum_buffer;
    if use_momentum {
        buffer = h.momentum * buffer + h.one_minus_momentum * step;
        step = buffer;
    }
    return Updated(param - h.lr * step, State(buffer));
}
