// Package controllers stands in for the module of this name, which no proxy has. The allocators do not use it; a package
// beside them names this one constant of it.
package controllers

// DerivedServiceAnnotation is set on a ServiceImport.
const DerivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"
