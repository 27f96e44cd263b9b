"""The tuner: which workgroup and tile a kernel is given, by device and by the shape of its work.

`candidates` states what can be chosen for each kernel. `search` times it, `choices` holds what was found and gives it
to launches, `records` is the form in which it is kept, and `shipped` what came with the library. `switch` says whether
choices are used; nothing else is loaded where nothing is tuned.
"""
