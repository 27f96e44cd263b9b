"""Programs whose results are the same to the last bit: of integers, booleans, and floats that nothing has to round.

These floats are small multiples of a power of two, since an adapter may regroup what is not; so they may be compared
and converted, and branches depend on them. Maps are of the part of the subset that array targets take, kernels have
vectors, arrays and any loop besides.
"""

import re

from .forms import KERNELS, LITERALS, MAPS, VECTORS

HEADER = """
struct Pair { a: i32, b: f32, c: bool }
struct Nest { p: Pair, n: u32 }
fn bounded(x: f32) -> f32 { return clamp(floor(x * 4.0) * 0.25, -8.0, 8.0); }
fn bits_of(x: f32) -> u32 { return u32(i32(x * 4.0)); }
fn mixed(nest: Nest, more: u32) -> Nest { return Nest(nest.p, nest.n ^ more); }
fn no_nan(x: f32) -> f32 { return select(x, 0.0, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u); }
"""
KERNEL_HEADER = """
fn bounded2(x: vec2<f32>) -> vec2<f32> { return clamp(floor(x * 4.0) * 0.25, vec2<f32>(-8.0), vec2<f32>(8.0)); }
fn bounded4(x: vec4<f32>) -> vec4<f32> { return clamp(floor(x * 4.0) * 0.25, vec4<f32>(-8.0), vec4<f32>(8.0)); }
"""
SCALARS = ("i32", "u32", "f32", "bool")
PARAMETERS = {"x": "i32", "y": "u32", "z": "f32", "w": "f32", "t": "bool", "s": "Nest"}
MEMBERS = {"Pair": {"a": "i32", "b": "f32", "c": "bool"}, "Nest": {"p": "Pair", "n": "u32"}}
ARRAY = "array<i32, 4>"
_AS_BITS = {"i32": "u32", "u32": "u32", "f32": "bits_of", "bool": "u32"}
_BOUNDED = {"f32": "bounded", "vec2<f32>": "bounded2", "vec4<f32>": "bounded4"}


def write(choices, name, is_kernel):
    """WGSL of the function of that name, and of one that it may call; without the header."""
    helper = _Writer(choices, is_kernel, []) if choices.chance(25) else None
    text = helper.function(f"{name}_helper", choices.pick(helper.types)) if helper else ""
    called = [(f"{name}_helper", helper.result)] if helper else []
    return text + _Writer(choices, is_kernel, called).function(name, "Nest")


class _Writer:
    """Writes one function; `variables` are (name, type, whether it can be assigned), the innermost last."""

    def __init__(self, choices, is_kernel, functions):
        self.choices, self.is_kernel, self.functions = choices, is_kernel, functions
        self.forms = KERNELS if is_kernel else MAPS
        self.types = [*SCALARS, *MEMBERS, *(VECTORS if is_kernel else ())]
        self.variables = [(name, type_, False) for name, type_ in PARAMETERS.items()]
        self.names = self.loops = self.scope = 0
        self.room = 10

    def function(self, name, result):
        self.result = result
        lines = [self.variable(type_, self.value(type_, 1)) for type_ in SCALARS if self.choices.chance(60)]
        lines += self.choices.several(lambda: self.statement([], 0), 4)
        lines.append(f"return {self.last()};")
        parameters = ", ".join(f"{parameter}: {type_}" for parameter, type_ in PARAMETERS.items())
        body = "\n    ".join(lines)
        return f"fn {name}({parameters}) -> {self.result} {{\n    {body}\n}}\n"

    def last(self):
        """The result; a struct holds something of every variable, so that little is computed in vain."""
        value = self.value(self.result)
        variables = {name for name, _, _ in self.variables[len(PARAMETERS) :]}
        if self.result != "Nest":
            return value
        parts = [
            f"{_AS_BITS[type_]}({place})"
            for type_ in SCALARS
            for place in self.places(type_)
            if re.match(r"\w+", place)[0] in variables
        ]
        return f"mixed({value}, {' ^ '.join(parts)})" if parts else value

    # Expressions.

    def places(self, type_, to_assign=False):
        """Everything of that type that has a name, members and elements too."""
        innermost = {name: (kind, can) for name, kind, can in self.variables}
        result, work = [], [(name, kind) for name, (kind, can) in innermost.items() if can or not to_assign]
        while work:
            name, kind = work.pop(0)
            if kind == type_:
                result.append(name)
            work.extend((f"{name}.{member}", inner) for member, inner in MEMBERS.get(kind, {}).items())
            if kind == ARRAY:
                work.extend((f"{name}[{index}]", "i32") for index in ("1", "y & 3u", "x & 3"))
            elif kind in VECTORS:
                work.extend((f"{name}.{component}", kind[5:-1]) for component in ("x", "xyzw"[int(kind[3]) - 1]))
        return result

    def expression(self, type_, depth=2):
        with self.choices.span():
            return self.written(type_, depth)

    def written(self, type_, depth):
        if type_ in MEMBERS or type_ == ARRAY:
            return self.composite(type_)
        known = self.places(type_)
        if depth == 0 or not self.choices.chance(75):
            if not known:
                return self.leaf(type_)
            return (
                known[-1 - self.choices.below(min(3, len(known)))]
                if self.choices.chance(50)
                else self.choices.pick(known)
            )
        calls = [name for name, result in self.functions if result == type_]
        if calls and self.choices.chance(15):
            return self.call(self.choices.pick(calls))
        form = self.choices.pick(self.forms[type_])
        left, sign, right = re.fullmatch(r"(.*) ([!=]=) (.*)|.*", form).groups()
        if not sign:
            return f"({self.filled(form, depth - 1)})"
        left, right = self.filled(left, depth - 1), self.filled(right, depth - 1)
        if left == right:  # which the lint refuses
            return f"{type_}(true)"
        return f"({left} {sign} {right})"

    def filled(self, form, depth):
        return re.sub(r"{([^}]*)}", lambda found: self.operand(found[1], depth), form)

    def operand(self, kind, depth):
        return self.choices.pick(LITERALS[kind]) if kind in LITERALS else self.expression(kind, depth)

    def leaf(self, vector):
        scalar = vector[5:-1]
        return f"{vector}({', '.join(self.expression(scalar, 0) for _ in range(int(vector[3])))})"

    def call(self, name):
        return f"{name}({', '.join(self.value(type_, 1) for type_ in PARAMETERS.values())})"

    def composite(self, type_):
        calls = [name for name, result in self.functions if result == type_]
        if calls and self.choices.chance(30):
            return self.call(self.choices.pick(calls))
        known = self.places(type_)
        if known and not self.choices.chance(60):
            return self.choices.pick(known)
        parts = ["i32"] * 4 if type_ == ARRAY else MEMBERS[type_].values()
        return f"{type_}({', '.join(self.value(kind, 1) for kind in parts)})"

    def value(self, type_, depth=2):
        """An expression that may be kept: floats bounded, so that what is computed from them stays exact."""
        text = self.expression(type_, depth)
        return f"{_BOUNDED[type_]}({text})" if type_ in _BOUNDED else text

    # Statements. `escapes` are the ways to leave that are possible here.

    def statement(self, escapes, depth):
        self.room -= 1
        kinds = ["assign", "assign", "assign", "declare"]
        if depth < 3 and self.room > 0:
            kinds += ["if"] * 4 + ["switch"] + ["for"] * (2 if self.loops < 3 else 0)
            if self.is_kernel and self.loops < 3:
                kinds += ["while", "loop"]
        return getattr(self, "write_" + self.choices.pick(kinds))(escapes, depth)

    def block(self, escapes, depth, may_leave=True):
        known, scope = len(self.variables), self.scope
        self.scope = known
        lines = self.choices.several(lambda: self.statement(escapes, depth), 3)
        if escapes and may_leave and self.choices.chance(50):
            way = self.choices.pick(escapes)
            lines.append(f"return {self.value(self.result)};" if way == "return" else f"{way};")
        del self.variables[known:]
        self.scope = scope
        return "{ " + " ".join(lines) + " }"

    def declared(self, type_, can_be_assigned, may_hide=True):
        """A new name, or in a block one from outside of it, which it then hides."""
        outside = [name for name, _, can in self.variables[len(PARAMETERS) : self.scope] if can]
        inside = [name for name, _, _ in self.variables[self.scope :]]
        hidden = [name for name in outside if name not in inside]
        if may_hide and hidden and self.choices.chance(10):
            name = self.choices.pick(hidden)
        else:
            self.names += 1
            name = f"v{self.names}"
        self.variables.append((name, type_, can_be_assigned))
        return name

    def variable(self, type_, value, keyword="var"):
        return f"{keyword} {self.declared(type_, keyword == 'var')} = {value};"

    def write_declare(self, escapes, depth):
        type_ = self.choices.pick([*self.types, ARRAY] if self.is_kernel else self.types)
        value, keyword = self.value(type_), self.choices.pick(("let", "var", "var"))
        if type_ == ARRAY:
            keyword = "var"
        elif keyword == "var" and type_ in SCALARS and self.choices.chance(15):
            return f"var {self.declared(type_, True)}: {type_};"
        return self.variable(type_, value, keyword)

    def write_assign(self, escapes, depth):
        type_ = self.choices.pick([*SCALARS, "Pair", *(VECTORS if self.is_kernel else ())])
        targets = self.places(type_, to_assign=True)
        if not targets:
            return self.write_declare(escapes, depth)
        target = self.choices.pick(targets)
        if type_ in ("i32", "u32"):
            sign = self.choices.pick(("", "", "+", "^", "/", "-", "*", "%", "|", "&", "<<", ">>", "++", "--"))
            if sign in ("++", "--"):
                return f"{target}{sign};"
            return f"{target} {sign}= {self.value('u32' if sign in ('<<', '>>') else type_)};"
        sign = self.choices.pick(("", "", "|", "&")) if type_ == "bool" else ""
        return f"{target} {sign}= {self.value(type_)};"

    def write_if(self, escapes, depth):
        escapes, first = escapes or ["return"], self.choices.chance(50)  # not both may leave: then nothing may follow
        text = f"if {self.expression('bool')} {self.block(escapes, depth + 1, first)}"
        return text + (f" else {self.block(escapes, depth + 1, not first)}" if self.choices.chance(50) else "")

    def write_switch(self, escapes, depth):
        inner = [*{*escapes, "return", "break"}]
        labels = ["case 0:", "case 1, -2:", "default:", "case 3:"]
        cases = " ".join(f"{label} {self.block(sorted(inner), depth + 1, label != 'default:')}" for label in labels)
        return f"switch {self.expression('i32')} % 4 {{ {cases} }}"

    def write_for(self, escapes, depth):
        counter, body = self.loop_body(depth)
        header = self.choices.pick(
            ("{0} = 0; {0} < {1}; {0}++", "{0} = 2; {0} > -{1}; {0} -= 2", "{0} = 0; {0} != {1}; {0}++")
        )
        return f"for (var {header.format(counter, 1 + self.choices.below(3))}) {body}"

    def loop_body(self, depth, may_leave=True):
        self.loops += 1
        known = len(self.variables)
        counter = self.declared("i32", False, may_hide=False)
        escapes = ["break", "continue", "return"] if self.choices.chance(50) else ["continue"]
        body = self.block(escapes, depth + 1, may_leave)
        del self.variables[known:]
        return counter, body

    def write_while(self, escapes, depth):
        counter, body = self.loop_body(depth)
        count = self.choices.pick(("2", "(x & 3)"))
        return f"var {counter} = 0; while {counter} < {count} {{ {counter}++; {body[2:]}"

    def write_loop(self, escapes, depth):
        counter, body = self.loop_body(depth, may_leave=False)
        count = self.choices.pick(("2", "(x & 3)"))
        return f"var {counter} = 0; loop {body[:-1]} continuing {{ {counter}++; break if {counter} >= {count}; }} }}"
