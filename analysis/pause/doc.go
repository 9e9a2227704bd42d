// # Resume plans
//
// A plan is an order in which a job pauses and resumes tagged memory; the best has the lowest peak of what is resident.
//
// A job that pauses and resumes memory runs through the same stages over and over: train, sync,
// roll out. Each stage needs some tags; between two stages the job may pause and resume others.
// A [Cycle] lists the stages in order, with the bytes of each tag, and of everything untagged, in
// each.
//
//	           ┌ train ┐┌ sync ┐┌ rollout ┐┌ train ┐
//	trainer    ███████████████            ████████
//	rollout            ··················
//	cache                      ··········
//
// There are three ways to run a cycle, each a [Plan]:
//
//	never paused  all tags are resident in every stage
//	together      as soon as a stage needs a paused tag, all tags that are needed before that tag
//	              is paused again are resumed with it
//	on use        a tag is resumed when a stage needs it
//
// A tag must be resident in the stages that need it, so no plan has a lower peak than on use: its
// peak is the greatest need of any stage. Pauses come before resumes, so a transition takes no
// more than the stages around it. Where there is room below that peak, tags that a stage does not
// need may stay resident: on use keeps those that save the most copying, then the most bytes
// unmapped and mapped again.
//
// Plans know nothing of traces. All sizes are bytes.
package pause
