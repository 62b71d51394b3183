import torch


class Net(torch.nn.Module):
    def __init__(self, faulty=False):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.second = torch.nn.Linear(8, 4)
        self.faulty = faulty

    def forward(self, x):
        h = torch.nn.functional.gelu(self.first(x), approximate="tanh" if self.faulty else "none")
        h = h * 1.5
        if self.faulty:
            h = h.contiguous() + 0.0
        y = self.second(h)
        return torch.softmax(y, dim=-1)


def net():
    torch.manual_seed(0)
    return Net()


def faulty_net():
    torch.manual_seed(0)
    return Net(faulty=True)
