package workflow

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/serverlessworkflow/sdk-go/v3/model"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func (c *compiler) try(path string, t *model.TryTask) *nodeapi.Try {
	if t.Catch == nil {
		c.fail(path, "catch is missing; it may be empty: {}")
		return nil
	}
	out := &nodeapi.Try{Tasks: c.list(path+"/try", t.Try), As: c.variable(path+"/catch/as", t.Catch.As, "error"), Catches: t.Catch.Do != nil}
	if w := t.Catch.Errors.With; w != nil {
		out.With = &nodeapi.ErrorFilter{Type: w.Type, Status: int32(w.Status), Instance: w.Instance, Title: w.Title, Detail: w.Details}
	}
	c.within([]string{out.GetAs()}, func() {
		out.When = c.expression(path+"/catch/when", t.Catch.When)
		out.ExceptWhen = c.expression(path+"/catch/exceptWhen", t.Catch.ExceptWhen)
		if t.Catch.Retry != nil {
			out.Retry = c.retry(path+"/catch/retry", t.Catch.Retry)
		}
		out.Catch = c.list(path+"/catch/do", t.Catch.Do)
	})
	return out
}

func (c *compiler) retry(path string, r *model.RetryPolicy) *nodeapi.Retry {
	if r.Ref != "" {
		var known *model.RetryPolicy
		if c.use != nil {
			known = c.use.Retries[r.Ref]
		}
		if known == nil {
			c.fail(path, "use.retries has no %q", r.Ref)
			return nil
		}
		r = known
	}
	out := &nodeapi.Retry{When: c.expression(path+"/when", r.When), ExceptWhen: c.expression(path+"/exceptWhen", r.ExceptWhen), Delay: c.duration(path+"/delay", r.Delay),
		Duration: c.duration(path+"/limit/duration", r.Limit.Duration)}
	if a := r.Limit.Attempt; a != nil {
		if a.Count < 0 {
			c.fail(path+"/limit/attempt/count", "the number is not negative")
		}
		out.Attempts = int32(min(a.Count, attemptsMost))
	}
	if b := r.Backoff; b != nil {
		for name, set := range map[string]*model.BackoffDefinition{"constant": b.Constant, "linear": b.Linear, "exponential": b.Exponential} {
			if set != nil {
				out.Backoff = name
			}
		}
	}
	if j := r.Jitter; j != nil {
		out.JitterFrom, out.JitterTo = c.duration(path+"/jitter/from", j.From), c.duration(path+"/jitter/to", j.To)
	}
	if late := out.GetDelay(); out.GetAttempts() == 0 && out.GetDuration() == nil && !positive(late) {
		c.fail(path, "the retries have no end and no delay; set limit.attempt.count, or delay")
	}
	return out
}

// attemptsMost is more than anybody waits for.
const attemptsMost = 1 << 20

func positive(d *durationpb.Duration) bool { return d.AsDuration() > 0 }
