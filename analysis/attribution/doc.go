// Package attribution divides the live blocks of a device by category, phase, module, call stack and size.
//
// The [Tracker] of a process follows the contexts, labels, stacks and phases of its events. From
// these it divides any set of blocks into a [Result]. [DevicePhases] measures the phases on one
// device.
//
// The package knows blocks ([ledger.Block]) and events. It knows neither where blocks lie nor which
// instants matter: package analysis asks for the blocks of the peak, of failed requests and of leaks.
package attribution
