//go:build !js

package main

import "github.com/spf13/cobra"

// addVerbs adds all verbs; verbs_js.go has those of a browser.
func addVerbs(root *cobra.Command) {
	addGroup(root, "Record", newRecordCommand(), newTopCommand(), newSnapshotCommand(), newAttachCommand(), newImportCommand())
	addGroup(root, "Read", newReportCommand(), newVerifyCommand(), newDiffCommand(), newCheckCommand(), newExportCommand(), newExplainCommand(), newMCPCommand())
	addGroup(root, "Try other settings", newFitCommand(), newKVCommand(), newLabCommand())
	addGroup(root, "Set up", newDoctorCommand())
}
