package program

import "hash/fnv"

// Guess is the case that a switch will choose, as in Choice; false: nobody knows.
type Guess func(task string, route uint64) (chosen int, known bool)

// aheadLimit bounds how many tasks are looked at: they may go in circles.
const aheadLimit = 256

// Ahead are the hosts that the run will call next, as far as the document says them and guess knows where the run goes: of most
// calls at most, without those that are open. The same host may come again.
func (s *State) Ahead(guess Guess, most int) []string {
	w := &walk{guess: guess, most: most, program: s.run.program}
	for _, step := range s.open {
		w.route, w.left = s.route, aheadLimit
		if step.again {
			w.tasks(step.frame.task.try.tasks, step.frame)
		} else {
			w.after(step.frame.up, step.frame.task.then)
		}
	}
	return w.hosts
}

// walk goes through tasks as a run would, as far as that is known.
type walk struct {
	program *Program
	guess   Guess
	most    int
	left    int // tasks to look at
	route   uint64
	hosts   []string
}

// noJoin is of a branch that is only looked at.
const noJoin = -1

func (w *walk) tasks(l list, up *frame) {
	if len(l) == 0 {
		w.ends(up)
		return
	}
	w.task(l[0], up)
}

func (w *walk) task(k *task, up *frame) {
	if w.left--; w.left < 0 || len(w.hosts) >= w.most {
		return
	}
	to, f := k.then, &frame{up: up, task: k}
	switch {
	case k.raise:
		return
	case k.call != nil:
		if host := k.call.GetHost(); host != "" {
			w.hosts = append(w.hosts, host)
		}
		w.route = routeOf(w.route, k, -1)
	case k.cases != nil:
		chosen, known := w.guess(k.path, w.route)
		if !known || chosen > len(k.cases) {
			return
		}
		if chosen < len(k.cases) {
			to = k.cases[chosen].then
		}
		w.route = routeOf(w.route, k, chosen)
	case k.fork != nil:
		for _, branch := range k.fork.branches {
			w.task(branch, &frame{role: ofBranch, up: f, task: k, join: noJoin})
		}
	case k.loop != nil: // gone through once
		w.tasks(k.loop.tasks, &frame{role: ofIteration, up: f, task: k})
		return
	case k.try != nil:
		w.tasks(k.try.tasks, &frame{role: ofAttempt, up: f, task: k})
		return
	case k.do != nil:
		w.tasks(*k.do, f)
		return
	}
	w.after(up, to)
}

// after goes on behind a task of a frame.
func (w *walk) after(up *frame, to then) {
	l := up.tasks(w.program)
	switch {
	case to.end:
	case to.exit || up.role == ofBranch || to.to >= len(l):
		w.ends(up)
	default:
		w.task(l[to.to], up)
	}
}

// ends goes on behind all tasks of a frame.
func (w *walk) ends(f *frame) {
	switch {
	case f.role == ofRun || f.role == ofBranch && f.join == noJoin:
	case f.role == ofTask:
		w.after(f.up, f.task.then)
	default:
		w.after(f.up.up, f.task.then)
	}
}

// routeOf is the route that goes on by a task.
func routeOf(route uint64, k *task, chosen int) uint64 {
	h := fnv.New64a()
	b := []byte(k.path)
	for _, n := range []uint64{route, uint64(chosen + 1)} {
		for range 8 {
			b = append(b, byte(n))
			n >>= 8
		}
	}
	_, _ = h.Write(b) // it has no errors
	return h.Sum64()
}
