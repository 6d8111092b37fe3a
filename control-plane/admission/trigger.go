package admission

import "github.com/headstart-mesh/headstart/control-plane/policy"

// triggerGranted holds a good trigger against the operator's stores, as policy.Parse does
// with those that are granted to the namespace. It follows granted.
var triggerGranted = []variable{
	{"triggerStoreGiven", quote(policy.KeyTriggerStore) + " in variables.annotations"},
	{"triggerStoreName", "variables.triggerStoreGiven ? variables.triggerStore : variables.storeName"},
	{"triggerStoreKey", "variables.triggerStoreGiven ? " + quote(policy.KeyTriggerStore+": ") + " : " + quote(policy.KeyStore+": ")},
	{"triggerChosen", "variables.granted.filter(s, s.name[0] == variables.triggerStoreName)"},
	{"triggerMatters", quote(policy.KeyTrigger) + " in variables.annotations && variables.triggerWrong == '' &&\n" +
		"  (variables.triggerStoreGiven ? variables.triggerStoreWrong == '' : !variables.storeGiven || variables.storeWrong == '')"},
	{"triggerGrantProblem", "!variables.triggerMatters ? ''\n" +
		": variables.triggerChosen.size() == 0\n" +
		"  ? variables.triggerStoreKey + strings.quote(variables.triggerStoreName) + ' is not among the operator\\'s stores; ' +\n" +
		"    (variables.granted.size() == 0 ? 'ask the operator to allow it' : 'use one of ' + " + firstNames("variables.granted.map(s, s.name[0])") + ")\n" +
		": !('redis' in variables.triggerChosen[0].schemes)\n" +
		"  ? variables.triggerStoreKey + strings.quote(variables.triggerStoreName) + " + quote(" has no streams; name a store of the kind redis by "+policy.KeyTriggerStore) + "\n" +
		": variables.trigger.split('/')[2] in variables.triggerChosen[0].buckets ? ''\n" +
		": " + quote(policy.KeyTrigger+": ") + " + " + shown("variables.trigger") + " + 'is in a bucket that store ' + variables.triggerStoreName + ' does not allow; use one of ' + " +
		firstNames("variables.triggerChosen[0].buckets") + " + ', or ask the operator to allow it'"},
}
