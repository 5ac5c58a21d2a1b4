"""Judges a history, offline and from nothing but its lines: `judging.judge(lines)`.

`timeline` puts the lines in order, `evidence` holds what follows from them, each module beside has the rules of one subject,
and `rules` lists them all. A rule is a generator of what it finds, in one or a few scans: 200,000 lines take seconds.
"""
