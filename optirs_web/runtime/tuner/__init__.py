"""The tuner: which workgroup and tile a kernel is given, by device and by the shape of its work.

`candidates` states what can be chosen for each kernel. `search` times it, `choices` holds what was found and gives it
to launches, `records` is the form in which it is kept, `folder` and `indexed_db` the places, and `shipped` what came
with the library. Nothing but `folder` is loaded where nothing is tuned.
"""
