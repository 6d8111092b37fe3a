package nodeapi

import "github.com/headstart-mesh/headstart/filters/filterapi/reference"

// Templates are those of the function's inputs, as far as nodes know them.
func (x *Function) Templates() reference.Inputs {
	return reference.NewInputs(x.GetInputTemplate(), x.GetInputTemplates())
}

// TakesInput tells whether the function's requests may have stored inputs.
func (x *Function) TakesInput() bool { return x.GetHasInput() || len(x.GetInputTemplates()) > 0 }

// IfActive is what nodes know of the inputs of an observed function as if they were fetched; nil: it is not observed.
func (x *Function) IfActive() *Function {
	if len(x.GetObserved()) == 0 {
		return nil
	}
	all := reference.Inputs(x.GetObserved())
	return &Function{Name: x.GetName(), Store: x.GetStore(), HasInput: all[""] != "", InputTemplate: all[""], InputTemplates: all.Named()}
}

// Taken are those of a request's references that are of the function's inputs.
func (x *Function) Taken(references reference.Inputs) reference.Inputs {
	taken := reference.Inputs{}
	for name, ref := range references {
		if _, named := x.GetInputTemplates()[name]; named || name == "" && x.GetHasInput() {
			taken[name] = ref
		}
	}
	return taken
}
