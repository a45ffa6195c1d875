// Package model checks models of the grant protocols, in Promela, the language of spin: grant.pml of redislock, on one server, and quorum.pml of
// redlock, on three. Each step of a model names the line of a script, or the function, that it stands for.
//
//	make model                  all instances and mistakes, and writes test/results/model.json
//	make model MODEL='late'     those whose name it matches, and writes nothing
//
// spin follows every order of steps of an instance, with requests, answers and messages that are late or lost, until no new state comes. So an
// instance that holds holds for all runs of that size, and for no larger one. A mistake leaves out one rule of the code, and the property that
// it names has to break: else the model would see nothing.
//
// What the models leave out is listed in tools/proof/model.go, and on docs/proof.md.
package model
