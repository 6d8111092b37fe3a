package policy

import "github.com/headstart-mesh/headstart/shim/nodeapi/field"

// observe is the annotation as errors name it.
const observe = KeyMode + ": " + ModeObserve

// What is said of annotations beside KeyMode: observe.
const (
	// Beside is said of one by which Headstart would do more than name inputs.
	Beside    = "has no place beside " + observe + ", which only names inputs"
	BesideFix = "remove one of the two"
	// BodyBeside is said of an input that is no object.
	BodyBeside    = "names no object that " + observe + " could observe"
	BodyBesideFix = "write an input like s3://videos/{header.x-key}, or remove " + KeyMode
	// NoneBeside is said where there is no input at all.
	NoneBeside    = "has no input to observe"
	NoneBesideFix = "add " + KeyInput + ", or remove " + KeyMode
)

// checkMode refuses what an observed function cannot have.
func (p Policy) checkMode(given map[string]string) (errs field.Errors) {
	if !p.Observe {
		return nil
	}
	inputs := 0
	for _, a := range Annotations(Functions) {
		keys := a.keys(given)
		if a.Kind == Reference {
			inputs += len(keys)
		}
		if a.Observed {
			continue
		}
		for _, key := range keys {
			errs = append(errs, &field.Error{Field: key, Problem: Beside, Fix: BesideFix})
		}
	}
	if p.BodyInput {
		errs = append(errs, &field.Error{Field: KeyInput, Value: InputBody, Problem: BodyBeside, Fix: BodyBesideFix})
	}
	if inputs == 0 {
		errs = append(errs, &field.Error{Field: KeyMode, Value: ModeObserve, Problem: NoneBeside, Fix: NoneBesideFix})
	}
	return errs
}
