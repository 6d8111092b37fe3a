package kube

import "slices"

// Headstart is the scaler of functions that this platform scales itself.
const Headstart = "Headstart"

// About is what an operator asks of a function beyond its State.
type About struct {
	Workload string // kind and name of what has its pods; empty: nothing, or several
	Scaler   string // who scales that: Headstart, another autoscaler, or empty for nobody
}

// About returns what is known of a function, nothing of one that is none.
func (p *Platform) About(name string) About {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.functions[name]
	if f == nil {
		return About{}
	}
	a := About{Scaler: f.scaler()}
	if f.workload != nil {
		a.Workload = f.workload.kind + " " + f.workload.name
	}
	if a.Scaler == "" && f.workload != nil && f.workload.window > 0 {
		a.Scaler = Headstart
	}
	return a
}

// Refused are the names of those that run as if they had not opted in, because of what
// their events say; sorted.
func (p *Platform) Refused() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, problems := range p.problems {
		for _, problem := range problems {
			if problem.Refused && p.functions[problem.Function] == nil {
				names = append(names, problem.Function)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
