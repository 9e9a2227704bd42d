// Package summary makes the first screen of a report on a device: where the recording comes from, where the memory went, what it
// takes to hold that, what would need less, and the commands to run next.
//
// [Of] gathers what the screen says in a [Screen], whose JSON is the device's "summary"; [Screen.Sections] prints it. So text,
// Markdown, JSON and the page say the same.
//
//	categories  requested bytes at the peak, by category: their sum is what was requested
//	beside      what the device had in use beside what was requested
//	allocators  what the same requests need under each allocator that the user can choose, by replays of the recording
//	findings    changes that a replay says save memory, those that save most of a card first
//	leak        whether live bytes keep rising
package summary
