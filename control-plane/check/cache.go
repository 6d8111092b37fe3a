package check

import (
	"context"
	"fmt"

	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
)

func lookCache(ctx context.Context, l *look) Outcome {
	s, err := l.status(ctx)
	if err != nil {
		return unknown("its status", err)
	}
	var bytes, limit int64
	volumes, told, off := 0, 0, 0
	var problems []Problem
	for _, n := range s.Nodes {
		if n.Cache == nil {
			continue
		}
		told++
		bytes, limit, volumes = bytes+n.Cache.Bytes, limit+n.Cache.Limit, volumes+n.Cache.Volumes
		if n.Cache.Limit == 0 {
			off++
		}
		for _, p := range n.Cache.Problems {
			problems = append(problems, Problem{Object: "Node " + n.Name, Message: p})
		}
	}
	if told == 0 {
		return skip("no daemon says what it keeps")
	}
	count := fmt.Sprintf("%s of %s in the buffer, and %d %s, on %d %s", quantity.Format(bytes), quantity.Format(limit),
		volumes, plural(volumes, "volume", "volumes"), told, plural(told, "node", "nodes"))
	if off > 0 {
		count += fmt.Sprintf("; %d %s no objects (--cache-age 0)", off, plural(off, "keeps", "keep"))
	}
	if len(problems) > 0 {
		return warn("%s", count).with(problems)
	}
	return pass("%s", count)
}
