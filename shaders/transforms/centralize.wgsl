// Gradient centralization (Yong et al. 2020, arXiv:2004.01461): the mean of each output row is taken away.
struct Centralize { unused: f32 }

struct CentralizeMeasured { total: f32 }

fn centralize_measure(grad: f32) -> CentralizeMeasured {
    return CentralizeMeasured(grad);
}

fn centralize_settle(measured: CentralizeMeasured, size: f32) -> f32 {
    return measured.total / size;
}

fn centralize(grad: f32, row: f32) -> f32 {
    return grad - row;
}
