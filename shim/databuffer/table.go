package databuffer

import (
	"slices"
	"strings"
)

// What can be versioned says the server's own table of commands (COMMAND): those whose keys are known by their places, which
// wait for nothing, and whose replies depend on nothing but the keys.

// table has the commands of a server, by name.
type table map[string]entry

type entry struct {
	versioned         bool
	writes            bool
	first, last, step int // places of keys
}

// barred are flags of commands that are not versioned.
var barred = []string{"admin", "blocking", "movablekeys", "noscript", "pubsub"}

// never are commands that reach into other databases, and so into those of other attempts, that have the server read its own format, or
// that take long for what they are given.
var never = []string{"COPY", "MOVE", "RESTORE", "RESTORE-ASKING", "LCS"}

// parseTable reads what a server replies to COMMAND.
func parseTable(reply []any) table {
	t := table{}
	for _, one := range reply {
		fields, is := one.([]any)
		if !is || len(fields) < 8 {
			continue // a server before Redis 7 says too little
		}
		name, _ := fields[0].(string)
		flags, tips := texts(fields[2]), texts(fields[7])
		e := entry{first: number(fields[3]), last: number(fields[4]), step: number(fields[5])}
		bars := func(flag string) bool { return slices.Contains(barred, flag) }
		e.versioned = e.first > 0 && e.step > 0 && !slices.ContainsFunc(flags, bars) && !slices.Contains(tips, "nondeterministic_output")
		name = strings.ToUpper(name)
		e.versioned = e.versioned && !slices.Contains(never, name)
		e.writes = slices.Contains(flags, "write")
		t[name] = e
	}
	return t
}

// both has what two servers mean the same by.
func (t table) both(u table) table {
	common := table{}
	for name, e := range t {
		if u[name] == e {
			common[name] = e
		}
	}
	return common
}

// uses are a command's keys; ok: it can be versioned.
func (t table) uses(c *command) (e entry, keys []string, ok bool) {
	e = t[c.name()]
	last := e.last
	if last < 0 {
		last += len(c.words)
	}
	if !e.versioned || !c.whole() || last < e.first || last >= len(c.words) {
		return e, nil, false
	}
	for at := e.first; at <= last; at += e.step {
		keys = append(keys, string(c.words[at]))
	}
	return e, keys, true
}

// blind tells whether a command sets its keys, whatever they hold.
func blind(c *command) bool {
	switch c.name() {
	case "SET":
		return len(c.words) == 3 // its options are what looks
	case "MSET":
		return len(c.words)%2 == 1
	}
	return false
}

func texts(v any) (all []string) {
	list, _ := v.([]any)
	for _, one := range list {
		if s, is := one.(string); is {
			all = append(all, s)
		}
	}
	return all
}

func number(v any) int {
	n, _ := v.(int64)
	return int(n)
}
