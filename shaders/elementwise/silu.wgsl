// x times its logistic function (Elfwing et al. 2017, arXiv:1702.03118).
import package::lib::math::precise_exp;

fn silu(x: f32) -> f32 {
    let e = precise_exp(-abs(x));
    return x * (select(1.0, e, x < 0.0) / (1.0 + e));
}

fn silu_grad(g: f32, x: f32) -> f32 {
    let e = precise_exp(-abs(x));
    let here = select(1.0, e, x < 0.0) / (1.0 + e);
    let mirrored = select(e, 1.0, x < 0.0) / (1.0 + e);
    return g * (here * (1.0 + x * mirrored));
}
