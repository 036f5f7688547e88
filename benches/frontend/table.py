"""The figures of a run: one table for people, one JSON file for programs."""
import json


class Table:
    def __init__(self, machine, method):
        self.machine, self.method, self.rows = machine, method, []

    def add(self, figure, value, unit, peer=None, more_is_better=False, goal_ratio=None, goal_below=None, spread=None,
            peer_spread=None):
        """`peer` is (name, its value). A goal is a ratio to the peer to reach, or a value to stay below."""
        row = {"figure": figure, "ours": value, "unit": unit}
        if peer:
            row |= {"peer": peer[0], "peer_value": peer[1]}
            row["ratio"] = value / peer[1] if more_is_better else peer[1] / value
        if goal_ratio:
            row |= {"goal": f"≥ {goal_ratio}×", "met": row["ratio"] >= goal_ratio}
        if goal_below:
            row |= {"goal": f"< {goal_below} {unit}", "met": value < goal_below}
        if spread:
            row |= {"ours_runs": spread, "peer_runs": peer_spread}
        self.rows.append(row)

    def value(self, figure):
        return next(row["ours"] for row in self.rows if row["figure"] == figure)

    def print(self):
        """Markdown, so that it can be pasted where it is reported."""
        about = self.machine
        print(f"Machine: {about['cpu']}, {about['cores']} cores, {about['memory_gib']} GiB, Linux {about['kernel']}, "
              f"Python {about['python']}")
        print(f"Method: {self.method}")
        print()
        head = ["figure", "ours", "peer", "ratio", "goal", "reached"]
        cells = [head] + [self.cells(row) for row in self.rows]
        widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
        show = lambda line: "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
        print(show(head))
        print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
        for line in cells[1:]:
            print(show(line))

    def cells(self, row):
        number = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        peer = f"{row['peer']}: {number(row['peer_value'])} {row['unit']}" if "peer" in row else "–"
        ratio = f"{row['ratio']:.2f}×" if "ratio" in row else "–"
        reached = {True: "yes", False: "no", None: "–"}[row.get("met")]
        return [row["figure"], f"{number(row['ours'])} {row['unit']}", peer, ratio, row.get("goal", "–"), reached]

    def write(self, path):
        path.write_text(json.dumps({"machine": self.machine, "method": self.method, "figures": self.rows}, indent=2,
                                   ensure_ascii=False) + "\n")
        print(f"\nJSON: {path}")
