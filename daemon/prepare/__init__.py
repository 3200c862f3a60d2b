"""Making datasets: conversion from other forms, and synthetic data."""
