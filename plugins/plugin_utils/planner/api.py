# Copyright (c) 2026, dgxspark.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that others import of the planner. Plain values and typed ones in and out; nothing here starts, writes or waits.

Plans: `launch_plan` judges a profile and makes its ranks, `recommend` finds the best measured configuration for a traffic
shape, `memory_plan` and `draft_tokens` answer one question each, `serving_table` is a plan's text, `argv_builder` makes its
command lines. What knows a cluster gives the planner a `Cluster`, which says what its machines have free and how ranks find each
other; for an owner's own that is plugin_utils/serving, where playbooks and filters plan.
Profiles: `find_profile` reads one, `resolve_profile` lays overrides on it, `read_model` and `new_profile` make one of a
model's own files, `find_model_files` looks for them, `catalogue` plans all.
Rules: `rule_facts` describes what they may ask, `rule_facts_schema` is its JSON Schema.
Recipes: `read_recipe` makes a profile of another tool's file. Measured rows: `evidence_export`.
Images: `read_image_report` reads what an image said of itself, `image_entries` makes knowledge of it.

The layers below import downwards only: vocabulary, model, profile, judgement, and on it authoring, recipes and inspection.
"""

from __future__ import annotations

from .authoring import catalogue_text
from .authoring.catalogue import LEVELS as CATALOGUE_LEVELS
from .authoring.catalogue import SORTS as CATALOGUE_SORTS
from .authoring.catalogue import Catalogue, Choice, catalogue
from .authoring.model_auto import AUTO, Places
from .authoring.model_auto import look as find_model_files
from .authoring.model_auto import wanted as model_files_wanted
from .authoring.model_source import Hub, Source
from .authoring.model_source import read as read_model
from .authoring.new_profile import ClusterSize, ProfileRequest, new_profile
from .authoring.new_profile import Made as NewProfile
from .inspection.engine_table import entry as engine_entry
from .inspection.inspected import document as read_image_report
from .inspection.inspected import entries as image_entries
from .inspection.inspected import summary as image_summary
from .judgement.cluster import ANYWHERE, Cluster, Machines, Start
from .judgement.document import described as rule_facts
from .judgement.document import schema as rule_facts_schema
from .judgement.evidence import MIXED, NOISE, SHAPES
from .judgement.evidence import entries as evidence_entries
from .judgement.patches import load_patches
from .judgement.plan import (
    Request,
    draft_tokens,
    evidence_export,
    launch_plan,
    memory_plan,
    plan_of,
    recommend,
    request,
)
from .judgement.table import serving_table
from .model.constants import constant, constants
from .model.estimate import LEVELS as ESTIMATE_LEVELS
from .model.estimate import promise as promised_speed
from .model.memory import Free
from .profile import profile_text
from .profile.fewer import too_few_nodes
from .profile.model_files import given as given_model_files
from .profile.model_files import read as read_model_files
from .profile.profile import KIND as PROFILE_KIND
from .profile.profile import Profile
from .profile.profile import entries as profile_entries
from .profile.profile import extended as extended_profile
from .profile.profile import find as find_profile
from .profile.profile import resolve as resolve_profile
from .recipes.recipe import profile_of as profile_of_recipe
from .recipes.recipe import read as read_recipe
from .vocabulary.arguments import build_argv
from .vocabulary.builder import BuildArgv
from .vocabulary.builder import builder as argv_builder
from .vocabulary.flag_table import Parser as FlagTable
from .vocabulary.kept_secrets import of_command as refuse_secrets_in_command
from .vocabulary.settings import SET_BY_PLAN, load_tables

__all__ = [
    "ANYWHERE",
    "AUTO",
    "CATALOGUE_LEVELS",
    "CATALOGUE_SORTS",
    "ESTIMATE_LEVELS",
    "MIXED",
    "NOISE",
    "PROFILE_KIND",
    "SET_BY_PLAN",
    "SHAPES",
    "BuildArgv",
    "Catalogue",
    "Choice",
    "Cluster",
    "ClusterSize",
    "FlagTable",
    "Free",
    "Hub",
    "Machines",
    "NewProfile",
    "Places",
    "Profile",
    "ProfileRequest",
    "Request",
    "Source",
    "Start",
    "argv_builder",
    "build_argv",
    "catalogue",
    "catalogue_text",
    "constant",
    "constants",
    "draft_tokens",
    "engine_entry",
    "evidence_entries",
    "evidence_export",
    "extended_profile",
    "find_model_files",
    "find_profile",
    "given_model_files",
    "image_entries",
    "image_summary",
    "launch_plan",
    "load_patches",
    "load_tables",
    "memory_plan",
    "model_files_wanted",
    "new_profile",
    "plan_of",
    "profile_entries",
    "profile_of_recipe",
    "profile_text",
    "promised_speed",
    "read_image_report",
    "read_model",
    "read_model_files",
    "read_recipe",
    "recommend",
    "refuse_secrets_in_command",
    "request",
    "resolve_profile",
    "rule_facts",
    "rule_facts_schema",
    "serving_table",
    "too_few_nodes",
]
