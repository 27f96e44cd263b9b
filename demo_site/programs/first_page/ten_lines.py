import optirs_web as ow
from home import dense, spiral, watch  # weights, data, this page

arms = 3
x, labels = spiral(points=600, arms=arms)
(w1, b1), (w2, b2) = dense(2, 32), dense(32, 32)
w3, b3 = dense(32, arms)
optimizer = ow.optim.AdamW([w1, b1, w2, b2, w3, b3], lr=0.005)


def model(x):
    return ((x @ w1 + b1).relu() @ w2 + b2).relu() @ w3 + b3


def train_step(x, labels):
    optimizer.zero_grad()
    loss = ow.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    return loss


await watch(ow.compile(train_step), model, x, labels)
