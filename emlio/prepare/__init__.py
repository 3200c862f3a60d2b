"""Making datasets: conversion from other formats, and synthetic data."""
