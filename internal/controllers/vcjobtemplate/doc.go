// Package vcjobtemplate is the controller of Volcano's JobTemplates: it says in the status of each which Jobs were made of it. Package vcjobflow makes them.
//
//	JobTemplate, Job ──► book ──decide──► status ──write──► JobTemplate
package vcjobtemplate
