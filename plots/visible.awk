# SPDX-License-Identifier: GPL-3.0-or-later
# visible.awk: lines of text without what acts on a terminal; behind csv.awk.
{ print visible($0) }
